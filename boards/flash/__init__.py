"""Put firmware on boards: one flat function per tool, chosen by the board model's name for it."""
