include("$(MPY_DIR)/extmod/asyncio")
