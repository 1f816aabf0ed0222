"""From the broker's journal and the rig's JSON lines to bronze, silver and gold tables.

``session`` gives Spark; ``telemetry``, ``health``, ``rollup``, ``fleet_alerts``, ``table`` and
``read`` give tables as DataFrames (docs/tables.md).

- ``java``, ``sessions``: a quiet Spark, here or elsewhere; ``packaging``: our code for executors
- ``registry``: a file to ``rules`` (``rule_table``, ``rule_laws``, ``patterns``), or to all that
  is wrong with it, by line (``toml_lines``)
- ``decoding``: payloads to fields in Python, and by ``reading`` to readings; ``decoding_arrow``
  over Arrow columns, ``decoding_json`` the same by Spark's own functions, ``decoding_columns``
  all of it for a registry
- ``schemas``: every table's columns and version; documented in docs/tables.md
- ``silver``: messages to readings or to quarantine, batch and stream
- ``gold``, ``rollups``, ``fleet``: readings to streams and boards, to hours, to a fleet
- ``rig``, ``rig_history``: a rig's lines to tables, and many runs beside each other
- ``derived``: which tables are made from which others
- ``store``: tables as Parquet folders whose parts appear whole; ``compaction`` of them
- ``job``: all tables in their order, once
- ``run``: all tables all the time: ``config``, ``streams``, ``chores``, ``refresh``, ``status``
- ``views``: the tables for Spark SQL
- ``alerts``: boards that need somebody
- ``report``: the tables as one HTML file; needs no Spark
- ``notebook``: the tables as DataFrames
- ``cli``: ``motemq pipeline``
"""

from motemq_pipeline.notebook import fleet_alerts, health, read, rollup, session, table, telemetry

__all__ = ["fleet_alerts", "health", "read", "rollup", "session", "table", "telemetry"]
