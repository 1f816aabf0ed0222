# The stock manifest without onewire, ds18x20, dht and neopixel: they come from
# micropython-lib, which Debian's source package does not carry.
freeze("$(PORT_DIR)/modules")
include("$(MPY_DIR)/extmod/asyncio")
