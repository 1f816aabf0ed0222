// The unix port's standard variant, for unit tests of board code on a real interpreter.
#define MICROPY_CONFIG_ROM_LEVEL (MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES)
#include "ports/unix/variants/mpconfigvariant_common.h"
