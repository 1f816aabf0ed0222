"""What a person may type wrong at ``motemq rig run``."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from tests.boards.desk_files import motemq_rig, write_rig
from tests.boards.rig_process import Broker, eventually, processes_naming, rig_command, run_rig


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
        (["--virtual", "rp2040:1", "--limit", "flash=-5"], "'-5' is no number of seconds"),
        (["--virtual", "rp2040:1", "--limit", "flash=nan"], "'nan' is no number of seconds"),
        (["--virtual", "rp2040:1", "--fmqp", "nowhere"], "not HOST:PORT"),
        (["--virtual", "rp2040:1", "--fmqp", "mqtt://h:1"], "not fmqp://HOST:PORT"),
        (["--virtual", "rp2040:1", "--lightmq", "lightmqs://h:1"], "not lightmq://HOST:PORT"),
        *(
            (["--virtual", "rp2040:1", "--name", name], "write 1 to 31 of a-z, 0-9 and -")
            for name in ("", "a/b", "../..", "two words")
        ),
        (["--rig", "/none/rig.toml"], "'/none/rig.toml' does not exist"),
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
    assert not (tmp_path / "out").exists()  # it is told at once


@pytest.mark.parametrize("verb", ["run", "flash"])
def test_a_desk_without_a_board_says_how_to_get_one(tmp_path: Path, verb: str) -> None:
    result = motemq_rig(verb, "--rig", write_rig(tmp_path))
    assert result.returncode == 2, result.stdout
    said = " ".join(result.stdout.split())
    assert "no board is on this desk yet" in said
    assert "motemq rig add" in said
    assert "virtual = true" in said
    assert "motemq rig run --virtual rp2040:1" in said


@pytest.mark.parametrize("verb", ["run", "list", "flash"])
def test_a_mistake_in_the_desks_files_is_usage(tmp_path: Path, verb: str) -> None:
    """To try again heals nothing: file and line say what does."""
    rig = write_rig(tmp_path, "virtuel = true\n")
    result = motemq_rig(verb, "--rig", rig)
    assert result.returncode == 2, result.stdout
    assert f"{rig}:2: unknown key virtuel" in result.stdout


def test_a_file_where_the_boards_folder_should_be_is_no_empty_desk(tmp_path: Path) -> None:
    rig = tmp_path / "rig.toml"
    rig.write_text('name = "test"\n')
    (tmp_path / "boards").write_text("")
    result = motemq_rig("list", "--rig", rig)
    assert result.returncode == 2, result.stdout
    assert f"{tmp_path / 'boards'}: is no folder with the boards' files" in result.stdout
    (tmp_path / "boards").unlink()
    (tmp_path / "models").write_text("")
    result = motemq_rig("list", "--rig", rig)
    assert result.returncode == 2, result.stdout
    assert f"{tmp_path / 'models'}: is no folder with models of boards" in result.stdout


def test_what_else_a_careless_hand_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = write_rig(tmp_path)
    (tmp_path / "boards" / "u1.toml").write_text('id = "u1"\nmodel = "unix"\nserial_url = "x"\n')
    for then, why in (("", "it is empty"), ("a 'b", "No closing quotation")):
        result = motemq_rig("watch", tmp_path, "--rig", rig, "--then", then)
        assert result.returncode == 2, result.stdout
        assert why in result.stdout
    (tmp_path / "runtime").write_text("")
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    result = motemq_rig("virtual", "up", "esp32:1")
    assert result.returncode == 3, result.stdout
    assert "is no folder" in result.stdout


def test_a_board_that_is_not_on_the_desk_is_named_with_those_that_are(
    broker: Broker, tmp_path: Path
) -> None:
    rig = write_rig(tmp_path)
    (tmp_path / "boards" / "u1.toml").write_text('id = "u1"\nmodel = "unix"\nserial_url = "x"\n')
    result = run_rig(tmp_path / "out", broker, "--rig", str(rig), "--board", "u2")
    assert result.returncode == 2, result.stdout
    assert "no board 'u2' on this desk; there are: u1" in result.stdout


@pytest.mark.parametrize("option", ["--fmqp", "--lightmq"])
def test_a_broker_that_is_not_there_is_a_rig_fault_before_anything_is_flashed(
    tmp_path: Path, option: str
) -> None:
    port = port_for_later()
    said = motemq_rig(
        *("run", "--virtual", "rp2040:2", option, f"127.0.0.1:{port}", "--out", tmp_path / "out")
    )
    assert said.returncode == 3, said.stdout
    words = f"there is no broker to run against: nothing listens at fmqp://127.0.0.1:{port}"
    assert words in said.stdout
    assert not (tmp_path / "out" / "boards").exists()


def test_a_run_whose_output_nobody_reads_is_no_failed_check(broker: Broker, tmp_path: Path) -> None:
    """As ``motemq rig run | head -1``: 1 would be a verdict on the code."""
    command = rig_command(tmp_path / "out", broker, "--virtual", "esp32:1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline()
        run.stdout.close()
        assert (run.stderr.read(), run.wait(60)) == (b"", 141)
    eventually(lambda: not processes_naming(str(tmp_path)), 30, "something was left running")


def test_a_terminal_that_has_no_such_letters_is_no_end_of_a_run(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = run_rig(tmp_path / "out", broker, "--virtual", "esp32:1", "--checks", "ping")
    assert result.returncode == 0, result.stdout
    assert "vesp32-1: flash \\u2026\n" in result.stdout
