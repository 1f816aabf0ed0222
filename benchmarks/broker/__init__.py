"""The broker against mosquitto, nats-server and a relay that only copies bytes.

``mixture`` draws traffic of many lengths from a seed; ``workloads`` says what is measured, as data;
``wires`` spells it for each broker, and ``generator`` all of it beforehand, with what must arrive;
``peers`` starts the brokers; ``relay`` and ``bare_loop`` are what Python can reach; ``clients`` are
connected sockets; ``burst``, ``singles``, ``latency``, ``idle`` and ``retained`` measure one broker
once; ``metering`` tells what that cost, and who disturbed; ``rounds`` and ``steady`` take the
brokers in turn; ``effort`` says for how long; ``report`` prints.

This process generates the load, with raw sockets, and each broker is a process of its own.
"""
