"""From the broker's journal and the rig's JSON lines to bronze, silver and gold tables.

- ``java``, ``session``   a quiet Spark on this machine
- ``registry``            which paths carry which payloads (``registry.toml``)
- ``schemas``             every table's columns; documented in docs/tables.md
- ``bronze``, ``silver``, ``gold``, ``rig``   DataFrame to DataFrame
- ``store``               tables as Parquet folders, replaced as a whole
- ``job``                 all tables in their order
- ``report``              the tables as one HTML file; needs no Spark
- ``cli``                 ``motemq pipeline``
"""
