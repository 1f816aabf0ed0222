"""fq on one exchange: one consumer, eight that compete, many bindings."""
