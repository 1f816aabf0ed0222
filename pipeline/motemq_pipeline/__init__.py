"""From the broker's journal and the rig's JSON lines to bronze, silver and gold tables."""
