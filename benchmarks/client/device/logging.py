"""A log that nobody reads, for a client that writes one (client_mqtt_async)."""


class Logger:
    def debug(self, *said):
        pass

    info = warning = debug


def getLogger(name):
    return Logger()
