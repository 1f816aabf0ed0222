"""The broker against mosquitto, nats-server and a relay that only copies bytes.

``wires`` how each is spoken to, as prebuilt bytes; ``peers`` how each is started; ``relay`` the
physical limit of the design; ``workloads`` what is measured, as data; ``burst``, ``singles``,
``latency`` and ``idle`` measure one broker once; ``metering`` what that cost, and who disturbed;
``rounds`` takes them in turn; ``report`` prints.

This process generates the load, with raw sockets, and each broker is a process of its own.
"""
