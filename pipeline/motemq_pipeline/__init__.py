"""From the broker's journal and the rig's JSON lines to bronze, silver and gold tables.

``session`` gives Spark; ``telemetry``, ``health``, ``rollup``, ``fleet_alerts``, ``table`` and
``read`` give tables as DataFrames (docs/tables.md), ``plot`` a board as a figure.

- ``java``, ``sessions``: a quiet Spark, here or elsewhere; ``packaging``: our code for executors
- ``registry``: a file to ``rules`` (``rule_table``, ``rule_validation``, ``patterns``), or to all
  that is wrong with it, by line (``toml_lines``)
- ``decoding``: payloads to fields in Python, and by ``reading`` to readings; ``decoding_arrow``
  over Arrow columns, ``decoding_json`` the same by Spark's own functions, ``decoding_columns``
  all of it for a registry
- ``schemas``: every table's columns and version; documented in docs/tables.md
- ``storage``: where tables are; ``delta``: tables there; ``parquet_files``: what executors write;
  ``table_source``: tables as a source of Spark
- ``silver``: messages to readings or to quarantine; ``first_arrivals``: each reading once
- ``gold``, ``rollups``, ``sequence_numbers``: readings to boards, hours, streams; ``refresh``: of
  these, what is out of date
- ``rig``, ``rig_history``: a rig's lines to tables, and many runs beside each other
- ``job``: all tables in their order, once
- ``run``: all tables all the time: ``config``, ``source_options``, ``streams``, ``restarts``,
  ``maintenance``, ``status``
- ``sql``: the tables asked in SQL; ``notebook``: as DataFrames; ``report``: as one HTML file;
  ``live``: a page that goes on
- ``alerts``: boards that need somebody
- ``failures``: what went wrong, in one line
- ``cli``: ``motemq pipeline``
"""

from motemq_pipeline.notebook import (
    fleet_alerts,
    health,
    plot,
    read,
    rollup,
    session,
    table,
    telemetry,
)

__all__ = ["fleet_alerts", "health", "plot", "read", "rollup", "session", "table", "telemetry"]
