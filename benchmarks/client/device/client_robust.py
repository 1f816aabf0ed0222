"""umqtt.robust (on umqtt.simple), as its documentation says."""

import client_simple
from umqtt.robust import MQTTClient

FRAME = client_simple.FRAME


class Client(client_simple.Client):
    """As umqtt.simple's, but that it connects again by itself, and tries for ever."""

    kind = MQTTClient
