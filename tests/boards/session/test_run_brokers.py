"""Where the broker of a run is: on an address that the boards reach."""

from pathlib import Path

import pytest

from boards.inventory.models import virtual_models
from boards.inventory.rig_file import load_rig
from boards.session.broker_process import BrokerDown
from boards.session.plan import PlanError, Protocol, plan_boards, plan_desk
from boards.session.run_brokers import (
    broker_address,
    faced_by,
    facing,
    host_and_number,
    is_open_to_others,
    own,
)
from tests.boards.desk_files import write_rig


@pytest.mark.parametrize(
    ("text", "protocol", "address"),
    [
        ("lab:8765", "fmqp", "lab:8765"),
        ("fmqp://lab:8765", "fmqp", "lab:8765"),
        ("auto://10.0.0.2:1", "lightmq", "10.0.0.2:1"),
        ("lightmq://[::1]:8765", "lightmq", "[::1]:8765"),
    ],
)
def test_an_address_or_a_url(text: str, protocol: Protocol, address: str) -> None:
    assert broker_address(text, protocol) == address


@pytest.mark.parametrize(
    "text",
    [
        *("lab", "lab:", ":8765", "lab:0", "lab:65536", "fmqps://lab:1", "fmqp://lab:1/x", ""),
        *("[::1:8765", "fmqp://me:secret@lab:1", "me@lab:1"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        broker_address(text, "fmqp")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("lab:8765", ("lab", 8765)), ("10.0.0.2:1", ("10.0.0.2", 1)), ("[::1]:8765", ("::1", 8765))],
)
def test_an_address_has_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert host_and_number(text) == parts


def test_virtual_boards_of_a_run_are_on_this_machine() -> None:
    plans = plan_boards(["rp2040:2", "esp32:2"], virtual_models())
    assert facing(plans, None) == "127.0.0.1"
    assert not is_open_to_others("127.0.0.1")
    assert not is_open_to_others("::1")


def _desk(folder: Path, *hosts: str) -> Path:
    file = write_rig(folder)
    for number, host in enumerate(hosts):
        (folder / "boards" / f"b{number}.toml").write_text(
            f'id = "b{number}"\nmodel = "virtual-esp32"\nserial_url = "/dev/pts/9{number}"\n'
            f'[identity]\nmac = "24:0a:c4:12:34:5{number}"\n'
            f'[virtual]\ncontrol_port = 1\nhost = "{host}"\n'
        )
    return file


def test_boards_on_a_lan_reach_our_address_there(tmp_path: Path) -> None:
    rig = load_rig(_desk(tmp_path, "10.77.0.1", ""))
    assert facing(plan_desk(rig, ["b0"], []), rig) == "10.77.0.1"
    assert facing(plan_desk(rig, ["b1"], []), rig) == "127.0.0.1"
    assert is_open_to_others("10.77.0.1")


def test_boards_of_two_networks_do_not_share_a_broker(tmp_path: Path) -> None:
    rig = load_rig(_desk(tmp_path, "10.77.0.1", "10.78.0.1"))
    with pytest.raises(PlanError, match=r"10\.77\.0\.1 and 10\.78\.0\.1; run them apart"):
        facing(plan_desk(rig, [], []), rig)
    rig.file.write_text(rig.file.read_text() + '[broker]\nbind = "10.79.0.1"\n')
    rig = load_rig(rig.file)
    assert facing(plan_desk(rig, [], []), rig) == "10.79.0.1"


def test_where_no_broker_can_listen_is_said_before_one_is_started(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with (
        pytest.raises(BrokerDown, match=r"192\.0\.2\.77: it is no address of this machine"),
        own("192.0.2.77", log),
    ):
        raise AssertionError("it listens")
    assert not log.exists()


def test_a_desk_may_do_without_tls(tmp_path: Path) -> None:
    rig = load_rig(_desk(tmp_path, "10.77.0.1"))
    assert rig.tls
    rig.file.write_text(rig.file.read_text() + "[broker]\ntls = false\n")
    assert not load_rig(rig.file).tls


def test_only_boards_on_a_network_of_their_own_need_tls(tmp_path: Path) -> None:
    """Others are on this machine, or behind a bridge of it: plain on loopback."""
    rig = load_rig(_desk(tmp_path, "10.77.0.1", ""))
    assert [faced_by(plan, rig) for plan in plan_desk(rig, [], [])] == ["10.77.0.1", ""]
