"""From the broker's journal and the rig's JSON lines to bronze, silver and gold tables.

``session`` gives Spark; ``telemetry``, ``health``, ``rollup``, ``fleet_alerts``, ``table`` and
``read`` give tables as DataFrames (docs/tables.md), ``plot`` a board as a figure.

- ``java``, ``spark_release``, ``sessions``: a quiet Spark, here or on a cluster; ``packaging``: our
  code for executors
- ``registry``: a file to ``rules``, or to all that is wrong with it; ``toml_tables``: TOML by
  pydantic models, with the lines
- ``decoding_arrow``: messages to rows of silver, by Arrow columns, for all encodings; ``decoding``:
  a payload alone to readings, or to the words for what is wrong
- ``schemas``: every table's columns and version; documented in docs/tables.md
- ``storage``: where tables are; ``delta``: tables there, ``delta_log``: what their logs say;
  ``parquet_files``: what executors write; ``table_source``: tables as a source of Spark
- ``silver``: messages to readings or to quarantine, each reading once
- ``gold``, ``rollups``, ``sequence_numbers``: readings to boards, hours, streams; ``arrived``,
  ``windows``, ``readings``, ``sketches``: the roll-ups' part that works on columns; ``refresh``: of
  these, what is out of date
- ``rig``: a rig's lines to tables, and many runs beside each other
- ``job``: all tables in their order, once
- ``run``: all tables all the time: ``config``, ``source_options``, ``streams``, ``restarts``,
  ``maintenance``, ``status``
- ``sql``: the tables asked in SQL; ``notebook``: as DataFrames; ``report``: as one HTML file;
  ``live``: a page that goes on
- ``alerts``: boards that are silent, out of range, or lose readings
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
