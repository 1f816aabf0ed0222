// What runs on the virtual ESP32: the unix port, saying what it is.
#define MICROPY_CONFIG_ROM_LEVEL (MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES)
#define MICROPY_BANNER_MACHINE "Virtual ESP32 (MicroPython unix port, not ESP32 code)"
#include "ports/unix/variants/mpconfigvariant_common.h"

// Ctrl-C comes from the serial line at any instant. Raising straight from the signal handler
// could leave the heap locked or a file half written; boards schedule it, so does this.
#undef MICROPY_ASYNC_KBD_INTR
#define MICROPY_ASYNC_KBD_INTR (0)

// A board cannot run the host's commands.
#undef MICROPY_PY_OS_SYSTEM
#define MICROPY_PY_OS_SYSTEM (0)
