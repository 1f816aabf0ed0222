"""What differs between boards. Copy it to config.py, fill it in; git ignores that file."""

NAME = b"kitchen"  # this board's own, unique on the broker
HOST = "192.168.1.2"  # the broker's address; a name works too, but looking it up blocks
PORT = 8765  # where `motemq broker` listens for every protocol
LIGHTMQ_PORT = PORT  # another, if it listens for them apart
TLS_PORT = PORT

SSID = "home"
PASSWORD = "only here"
WATCHDOG_MS = 8000  # an RP2040 can do 8388 at most
GIVE_UP_MS = 300000  # reset after so long without a word from the broker
OUTAGE_FILE = "outage"  # what is kept in flash until the broker has it

UART = {"id": 1, "baud": 921600, "tx": 4, "rx": 5}
