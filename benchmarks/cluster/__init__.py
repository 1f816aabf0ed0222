"""The pipeline on machines with addresses of their own: network namespaces on a bridge.

- ``lan``           machines that can be killed, and whose cables can be cut
- ``spark``         a standalone cluster on some of them, from the pip package; a Connect server
- ``object_store``  SeaweedFS, for the tables
- ``network``       all together: a driver, a master and two workers, two brokers, the store
- ``campaign``      what is killed and cut under load, and the counting afterwards
"""
