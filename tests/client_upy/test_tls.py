"""TLS between the client and the real broker, certificates good and bad."""

from pathlib import Path

from tests.client_upy.interpreters import Interpreter, run_checks


def test_tls(interpreter: Interpreter, tls_folder: Path) -> None:
    run_checks(interpreter, "tls", str(tls_folder))
