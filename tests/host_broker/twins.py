"""Brokers with the compiled table of topics, and with its Python twin."""

import contextlib
from collections.abc import Iterator

import pytest

from host_broker.bus.topic_table import PythonTopicTable, python_deal


@contextlib.contextmanager
def python_twin(wanted: bool = True) -> Iterator[None]:
    """Have brokers that are made meanwhile use the Python twin, if that is ``wanted``."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr("host_broker.bus.routes.TopicTable", PythonTopicTable)
            patch.setattr("host_broker.bus.permitted.TopicTable", PythonTopicTable)
            patch.setattr("host_broker.protocols.fmqp.topics.TopicTable", PythonTopicTable)
            patch.setattr("host_broker.broker.deal", python_deal)
        yield
