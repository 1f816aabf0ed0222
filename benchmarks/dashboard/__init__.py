"""What the dashboard costs: the processor its page takes, and how much later others hear."""
