"""The Spark pipeline against Spark's own Parquet reader and a source that yields tuples."""
