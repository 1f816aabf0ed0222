"""What a client asks of the board (client_mqtt_async)."""


def unique_id():
    return b"bench"
