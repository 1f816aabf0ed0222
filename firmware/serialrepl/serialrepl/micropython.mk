# Linked into the unix port with USER_C_MODULES=<folder above this one>.
SRC_USERMOD_C += $(USERMOD_DIR)/serialrepl.c
CFLAGS_USERMOD += -DMODULE_SERIALREPL=1
# The unix port's own Ctrl-C handling presumes a shell's terminal; on a serial line it is ours.
LDFLAGS_USERMOD += -Wl,--wrap=mp_hal_set_interrupt_char
# A board ends lines itself.
LDFLAGS_USERMOD += -Wl,--wrap=mp_hal_stdout_tx_strn_cooked
