"""What alerts cost: the rules alone, and a query of them beside a live broker."""
