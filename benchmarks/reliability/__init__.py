"""What the promises of ``journal.ack`` cost, and long forms of the tests of faults.

- ``acknowledged``  publications acknowledged per second, and how long that takes
- ``command``       ``python -m benchmarks reliability``
"""
