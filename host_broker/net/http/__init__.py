"""HTTP: what programs ask a broker for that is no messaging.

- ``site``     who may ask, how it answers mistakes, the pages
- ``journal``  the journal by number and by time, and what consumer groups have read
"""
