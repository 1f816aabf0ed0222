"""What a person may type wrong at ``motemq rig run``."""

from pathlib import Path

import pytest

from tests.boards.rig_process import Broker, run_rig


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--virtual", "avr:1"], "no virtual board 'avr'"),
        (["--virtual", "rp2040:0"], "COUNT from 1 to 64"),
        (["--virtual", "rp2040:1", "--image", "vpico-7=x"], "no board 'vpico-7'"),
        (["--virtual", "rp2040:1", "--image", "vpico-1=/none.uf2"], "/none.uf2 is no file"),
        (["--virtual", "rp2040:1", "--image", "vpico-1"], "write BOARD=FILE"),
        (["--virtual", "rp2040:1", "--limit", "nap=3"], "no step 'nap'"),
        (["--virtual", "rp2040:1", "--limit", "flash=soon"], "'soon' is no number"),
        (["--virtual", "rp2040:1", "--fmqp", "nowhere"], "not HOST:PORT"),
        ([], "--virtual"),
    ],
)
def test_usage_errors_are_exit_code_2_with_the_remedy(
    broker: Broker, tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = run_rig(tmp_path / "out", broker, *arguments)
    assert result.returncode == 2, result.stdout
    assert words in result.stdout
    assert "Traceback" not in result.stdout
