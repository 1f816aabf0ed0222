"""Settings from a file and flags: typed by the dataclasses, every mistake one clear line."""

from pathlib import Path

import pytest

from host_broker.net.settings_source import SettingsError, load_settings
from host_broker.settings import Settings


def test_nothing_given_is_the_default() -> None:
    assert load_settings() == Settings()


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        "[lightmq]\ndialect = 'gbaranski'\nping_interval_s = 3\n"
        "[journal]\ntrim_read = true\n[net]\nmax_connections = 7\n"
    )
    settings = load_settings(file, ["net.max_connections=1_000", "journal.flush_s=0.5"])
    assert settings.protocols["lightmq"].dialect == "gbaranski"
    assert settings.protocols["lightmq"].ping_interval_s == 3.0
    assert isinstance(settings.protocols["lightmq"].ping_interval_s, float)
    assert settings.journal.trim_read is True
    assert settings.journal.flush_s == 0.5
    assert settings.net.max_connections == 1000
    assert settings.bus == Settings().bus
    assert "fmqp" not in settings.protocols


def test_the_later_flag_wins() -> None:
    settings = load_settings(None, ["journal.trim_read=TRUE", "journal.trim_read=false"])
    assert settings.journal.trim_read is False


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("trim_read", ["section.field=VALUE"]),
        ("x.y=1", ["unknown section 'x'", "fmqp, fq, http, journal, lightmq, micromsg2, net"]),
        ("net.speed=1", ["unknown key 'net.speed'", "max_connections"]),
        ("net.max_connections=many", ["'many'", "a whole number"]),
        ("net.max_connections=1.5", ["'1.5'", "a whole number"]),
        ("net.max_connections=0", ["above 0"]),
        ("lightmq.dialect=go", ["'go'", "one of spec, gbaranski"]),
        ("journal.trim_read=maybe", ["true or false"]),
        ("journal.flush_s=nan", ["a number of seconds above 0"]),
        ("journal.flush_s=inf", ["a number of seconds above 0"]),
        ("lightmq.ping_interval_s=-1", ["0 or more"]),
        ("net.outbox_low_bytes=5000000", ["outbox_high_bytes"]),
        ("bus.max_body=16777216", ["from 1 to 8388608"]),
        ("fmqp.hard_body_limit=4294967296", ["from 1 to 4294967295"]),
        ("net.busy_poll_us=1", ["unknown key 'net.busy_poll_us'"]),
        ("fmqp.max_cached=1", ["bus.max_retained"]),
        ("journal.fsync=true", ["journal.ack=synced"]),
        ("lightmq.carried_bytes=1", ["lightmq.tunnel_bytes"]),
        ("journal.partitions=100000", ["from 1 to 10000"]),
        ("lightmq.tunnel_bytes=65464", ["from 1 to 65463"]),
        ("lightmq.clients=x", ["a table in the --config file: [lightmq.clients]"]),
    ],
)
def test_a_wrong_flag_says_what_is_allowed(assignment: str, words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, [assignment])
    text = str(caught.value)
    assert "\n" not in text
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[net\n", ["is not TOML", "line 1"]),
        ("net = 5\n", ["must be a table"]),
        ("[net]\nmax_connections = true\n", ["net.max_connections is True", "whole number"]),
        ("[net]\nmax_connections = '7'\n", ["net.max_connections is '7'", "whole number"]),
        ("[journal]\ntrim_read = 1\n", ["true or false"]),
        ("[lightmq]\ndialect = ['spec']\n", ["one of spec, gbaranski"]),
        ("[web]\nport = 1\n", ["unknown section 'web'"]),
        ("[lightmq.clients]\nhall = 5\n", ["lightmq.clients must be", "see 'hall'"]),
        ("[lightmq.clients]\n'' = ''\n", ['"" or "sha256:"', "see ''"]),
        ("lightmq.clients = ['hall']\n", ["a table"]),
    ],
)
def test_a_wrong_file_is_named_with_its_key(toml: str, words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(toml)
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    text = str(caught.value)
    assert [word for word in [str(file), *words] if word not in text] == []


def test_a_list_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    digest = "sha256:" + "0a" * 32
    file.write_text(f'[lightmq.clients]\nkitchen = ""\n"aa:bb" = "{digest}"\n')
    assert load_settings(file).protocols["lightmq"].clients == {"kitchen": "", "aa:bb": digest}


@pytest.mark.parametrize("wrong", ["5up3r", "sha256:5up3r", "sha256:" + "0A" * 32])
def test_a_token_in_the_place_of_its_hash_is_not_repeated(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'[lightmq.clients]\nhall = "{wrong}"\n')
    with pytest.raises(
        SettingsError, match="64 hexadecimal digits for each client; see 'hall'"
    ) as e:
        load_settings(file)
    assert wrong not in str(e.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read --config .*No such file"):
        load_settings(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(tmp_path / "binary.toml")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[net]\nmax_connections = 7\n", encoding="utf-8-sig")
    assert load_settings(file).net.max_connections == 7
