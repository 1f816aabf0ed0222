"""Us against a named peer, in one run, the ratio printed. `make bench` runs all of them.

``peers`` says how each broker is started and spoken to; ``load`` measures one broker once;
``broker`` runs the rounds in turn and prints medians and ratios. Figures of different runs do not
compare: machines are noisy, so every ratio is taken within one round.
"""
