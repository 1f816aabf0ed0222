"""What a client asks of the board (client_mqtt_async, client_mqtt_as)."""


def unique_id():
    return b"bench"
