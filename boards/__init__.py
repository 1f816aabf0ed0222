"""The host's view of boards: consoles, flashing, bridges, virtual boards and the rig.

``repl`` is the one module that imports mpremote's transport; ``flash`` has one function per
tool; ``bridge`` joins a UART to a broker; ``virtual`` puts boards on a desk that has none;
``rig`` flashes, installs, checks and reports.
"""
