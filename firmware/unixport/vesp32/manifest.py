include("$(MPY_DIR)/extmod/asyncio")
module("vesp32_boot.py", base_path=".")
module("vesp32_machine.py", base_path=".")
module("vesp32_network.py", base_path=".")
