"""TLS between the client and the real broker, certificates good and bad."""

from pathlib import Path

import pytest

from tests.client_upy.interpreters import INTERPRETERS, Interpreter, run_checks

# TLS is not lwIP's, and its checks look at the host's sockets.
_WITH_HOST_SOCKETS = [name for name in INTERPRETERS if name != "micropython-lwip"]


@pytest.mark.parametrize("interpreter", _WITH_HOST_SOCKETS, indirect=True, scope="module")
def test_tls(interpreter: Interpreter, tls_folder: Path) -> None:
    run_checks(interpreter, "tls", str(tls_folder))
