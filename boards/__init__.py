"""The host's view of boards: consoles, flashing, bridges, checks and the rig.

child                  programs of ours that end with us
serial_port, repl, …   a serial line under deadlines; ``repl`` alone imports mpremote's transport
toml_file              TOML files as typed data, mistakes with file and line
inventory/             which boards there are: models, files, USB, locks, power
flash/                 put firmware on a board, never on the wrong one
session/               one board from blank to verdict, and a run of many in parallel
checks/                what every board must do, one file a family
faults/                the proxy between boards and broker, and what it can do to a line
reports/               what people and CI see of a run
bridge/                join a serial line to a broker
virtual/               boards for who has none; the rest knows only their control port
commands/, cli         the verbs of ``motemq rig``
pytest_plugin          the same boards for pytest
"""
