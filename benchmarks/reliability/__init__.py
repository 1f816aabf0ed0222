"""What the promises of ``journal.ack`` cost, and long forms of the tests of faults.

- ``acknowledged``  publications acknowledged per second, and how long that takes
- ``kills``         SIGKILL at random instants, or a loss of power, under the ``load`` of all kinds
- ``power_loss``    a disk that keeps what was synced
- ``faults``        crowds, a long request, a start after a kill
- ``page``          the tables of docs/reliability.md
- ``command``       ``python -m benchmarks reliability``
"""
