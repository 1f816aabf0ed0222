"""The tables as one self-contained HTML file, read with pyarrow: no Spark, no network.

- ``facts``   what the page says, as plain values from the tables
- ``charts``  figures as inline SVG that follows the page's dark or light colours
- ``page``    both into ``page.html.j2``, everything from data escaped
"""

from motemq_pipeline.report.page import write_report

__all__ = ["write_report"]
