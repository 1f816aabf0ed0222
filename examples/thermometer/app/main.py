"""Starts by itself after a reset; Ctrl-C gives the REPL."""

import json

from thermometer import Thermometer

with open("config.json") as file:
    config = json.load(file)
Thermometer(config["name"], config["broker"]).run()
