"""Every property holds with the compiled table of topics and with its Python twin."""

from collections.abc import Iterator

import pytest

from tests.host_broker.twins import python_twin


@pytest.fixture(params=[False, True], ids=["compiled", "python"], scope="module", autouse=True)
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    with python_twin(request.param):
        yield
