"""Publications that are acknowledged, by MicroMsg2, against mosquitto at QoS 1, in one run."""
