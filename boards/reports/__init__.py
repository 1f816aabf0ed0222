"""What people and CI see of a run, made from its two files alone (docs/rig-report.md).

record        the two files as values: boards, intervals, series
history       former runs: where they are, how long things took, what they measured
change        median and MAD over runs; what is flagged as changed
page          one self-contained HTML page: templates/, filled with measured, lanes, charts, axes
junit, markdown   for CI
live_table, summary   on the terminal, while a run lasts and at its end
"""
