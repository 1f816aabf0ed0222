"""The journal: how soon it serves after a start, how fast it is read by HTTP, and decoded."""
