# ffi is the one thing here that would need a library beyond libc; boards have none.
MICROPY_PY_FFI = 0
# Berkeley DB is not in Debian's source package.
MICROPY_PY_BTREE = 0
FROZEN_MANIFEST = $(VARIANT_DIR)/manifest.py
