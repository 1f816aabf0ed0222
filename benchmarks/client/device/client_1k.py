"""As client_fmqp, with a receive buffer of 1 KiB."""

import client_fmqp

FRAME = client_fmqp.FRAME


class Client(client_fmqp.Client):
    def __init__(self, port, counted=False):
        super().__init__(port, counted, rx_size=1024)
