"""A Wi-Fi that is up, for a client that asks (client_mqtt_async, client_mqtt_as)."""


class WLAN:
    STA_IF = 0

    def __init__(self, interface):
        pass

    def isconnected(self):
        return True

    def active(self, is_active):
        pass

    def connect(self, ssid, password):
        pass

    def disconnect(self):
        pass


STA_IF = WLAN.STA_IF
