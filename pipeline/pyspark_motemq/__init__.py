"""The Spark data source ``motemq``: reads the broker's journal as RecordBatches."""
