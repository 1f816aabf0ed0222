"""One self-contained HTML page of a run, made from its two files alone (docs/rig-report.md).

record    the two files as values: boards, intervals, series
history   former runs: where they are, how long things took, what they measured
change    median and MAD over runs; what is flagged as changed
markup    HTML that escapes everything it is given
axes      numbers, units, ticks
charts    curves and bars; text stays text, so that a phone can show them
lanes     what happened when: boards' states, last wills
sections  the parts of the page
page      the whole page
"""
