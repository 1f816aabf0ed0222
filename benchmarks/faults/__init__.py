"""Killing at random moments what the pipeline is made of, under load, and counting afterwards.

- ``processes``  a broker and a pipeline that can be killed and started again; its executors
- ``load``       boards that publish, through every fall of the broker
- ``count``      whether the table has what the journal has, each message once
- ``kills``      the three together
- ``command``    ``python -m benchmarks pipeline-faults``
"""
