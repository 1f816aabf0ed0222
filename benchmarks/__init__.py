"""Us against named peers, in one run, the ratio printed. ``make bench`` runs all of it.

``broker``: throughput, latency and idle cost of the broker. Figures of different runs do not
compare: machines are noisy, so every ratio is taken within one round. docs/benchmarks.md has more.
"""
