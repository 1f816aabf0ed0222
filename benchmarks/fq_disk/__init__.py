"""Disk queues of fq: messages a second, with many in one commit and with one in each."""
