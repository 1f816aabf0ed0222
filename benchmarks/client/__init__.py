"""The MicroPython client against umqtt and mqtt_async, on one interpreter, in one run.

``installed`` fetches and compiles what is compared; ``endpoint`` is the peer of all of them, one
process for MQTT, FMQP and LightMQ; ``wires`` how it spells them; ``device`` what MicroPython runs;
``runs`` starts that; ``measures`` takes the figures in turn; ``goals`` says what must be reached;
``report`` prints; ``size`` is ``make size``.
"""
