"""A run's TOML file: what it says, and every mistake with its line."""

import codecs
from pathlib import Path

import pytest

from motemq_pipeline.config import load_config
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.registry import BUILT_IN
from motemq_pipeline.source_options import source_options


def _file(folder: Path, text: str) -> Path:
    file = folder / "run.toml"
    file.write_text(text)
    return file


def test_the_least_that_is_needed(tmp_path: Path) -> None:
    text = '[source]\njournal = "data/journal"\n[tables]\nfolder = "out"\n'
    config = load_config(_file(tmp_path, text))
    assert config.source.journal == tmp_path / "data" / "journal"
    assert config.place.folder == tmp_path / "out"
    assert config.checkpoint == tmp_path / "out" / ".checkpoint"
    assert config.registry == BUILT_IN
    assert (config.rig, config.alerts, config.trigger_s) == (None, None, 0.0)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = _file(tmp_path, '[source]\nbrokers = "http://127.0.0.1:1"\n[tables]\nfolder = "t"\n')
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert load_config(file).place.folder == tmp_path / "t"


def test_everything(tmp_path: Path) -> None:
    text = """
[source]
brokers = ["http://127.0.0.1:8765", "https://far:8765"]
token_env = "MOTEMQ_TOKEN"
ca_file = "/etc/ca.pem"
topics = ["home/*", "lab/*"]
starting = "-10min"
max_rows = 5000
group = "tables"
fail_on_data_loss = false

[tables]
folder = "/data/tables"
checkpoint = "/data/checkpoint"
registry = "my.toml"
rig = "~/rig"
history = "2h"
keep = { bronze_messages = "30d", silver_telemetry = "365d" }

[run]
trigger = "250ms"
gold_every = "1.5 min"
compact_every = "2h"

[spark]
master = "spark://127.0.0.1:7077"
executor.memory = "512m"
"spark.cores.max" = 2
speculation = true

[alerts]
"""
    config = load_config(_file(tmp_path, text))
    assert config.source.brokers == ("http://127.0.0.1:8765", "https://far:8765")
    assert (config.source.topics, config.source.starting) == ("home/*,lab/*", "-10min")
    assert (config.source.max_rows, config.source.group) == (5000, "tables")
    assert not config.source.fail_on_data_loss
    assert source_options(config.source, None)["failOnDataLoss"] == "false"
    assert config.registry == tmp_path / "my.toml"
    assert config.rig == Path("~/rig").expanduser()
    assert (config.trigger_s, config.gold_every_s, config.compact_every_s) == (0.25, 90.0, 7200.0)
    assert config.history_s == 7200.0
    assert config.keep_s == {"bronze_messages": 30 * 86_400.0, "silver_telemetry": 365 * 86_400.0}
    assert config.spark == {
        "spark.master": "spark://127.0.0.1:7077",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.speculation": "true",
    }
    assert config.alerts == {}


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """[source]
journal = "journal"
brokers = "http://127.0.0.1:8765"
max_rows = 0
topic = "home/*"

[tables]
registry = 7

[run]
trigger = "fast"

[sparks]
master = "local[2]"

[alerts]
shards = 0
"""
    file = _file(tmp_path, text)
    with pytest.raises(PipelineError) as caught:
        load_config(file)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{file}:").split(":")[0] for line in lines] == [
        *("2", "4", "5", "7", "8", "11", "13", "17"),
    ]
    assert "needs one of brokers" in lines[0]
    assert "'max_rows' must be a number from 1, not 0" in lines[1]
    assert "'topic' is unknown in [source]; do you mean 'topics'?" in lines[2]
    assert 'needs folder = "…"' in lines[3]
    assert "'registry' must be a text, not 7" in lines[4]
    assert "'trigger' must be a time" in lines[5]
    assert "[sparks] is not known; there are [source]" in lines[6]
    assert "alerts.shards must be a whole number" in lines[7]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[source\n", "run.toml:1: "),
        ("", "run.toml:1: [source] needs one of"),
        (
            '[source]\njournal = "j"\ngroup = "g"\n[tables]\nfolder = "t"\n',
            "run.toml:3: group is for brokers",
        ),
        (
            '[source]\nbrokers = "b"\ntoken_env = "A"\ntoken_file = "b"\n[tables]\nfolder = "t"\n',
            "run.toml:3: give token_env or token_file, not both",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "s3a://bucket/tables"\n',
            'run.toml:4: tables at a URI need checkpoint = "FOLDER"',
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\ncheckpoint = "s3://b/c"\n',
            "run.toml:5: tables at a URI need checkpoint",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "s3://b/t"\ncheckpoint = "c"\n'
            'options = { aws_secret_access_key = "x" }\n',
            "run.toml:6: aws_secret_access_key is a secret: set AWS_SECRET_ACCESS_KEY in the",
        ),
        (
            '[source]\njournal = "s3a://bucket/journal"\n[tables]\nfolder = "t"\n',
            "run.toml:2: 'journal' must be a file or folder of this machine, not 's3a://bucket",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\nregistry = "hdfs://host/r.toml"\n',
            "run.toml:5: 'registry' must be a file or folder of this machine, not 'hdfs://host",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\n'
            'keep = { gold_fleet = "1d", alerts = "x" }\n',
            "run.toml:5: gold_fleet keeps all its rows",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\nkeep = { alerts = "x" }\n',
            "run.toml:5: 'alerts' must be a time such as \"500ms\", \"10s\", not 'x'",
        ),
        (
            'run = 5\n[source]\njournal = "j"\nstarting = 7\n[tables]\nfolder = "t"\n',
            "run.toml:1: 'run' must be a table, not 5",
        ),
        (
            '[source]\njournal = "j"\nstarting = 7\n[tables]\nfolder = "t"\n',
            "run.toml:3: 'starting' must be a text, not 7",
        ),
        (
            '[source]\njournal = "j"\nstarting = "soon"\n[tables]\nfolder = "t"\n',
            "run.toml:3: starting: 'soon' cannot be read; write earliest, latest, a time",
        ),
        (
            '[source]\nbrokers = ["a", "a:99999"]\n[tables]\nfolder = "t"\n',
            "run.toml:2: brokers: 'http://a:99999' is no address; write it as http://HOST:PORT",
        ),
        (
            '[source]\nbrokers = "http://a:1/path"\n[tables]\nfolder = "t"\n',
            "run.toml:2: brokers: 'http://a:1/path' is no address; write it as http://HOST:PORT",
        ),
        (
            '[source]\nbrokers = "http://me:secret@a:1"\n[tables]\nfolder = "t"\n',
            "run.toml:2: brokers: an address has a user or password; write it as http://HOST:PORT",
        ),
        (
            '[source]\nbrokers = ["a", "http://b"]\nca_file = "ca.pem"\n[tables]\nfolder = "t"\n',
            "run.toml:3: ca_file is for https://, and no broker has such an address",
        ),
        (
            '[source]\njournal = "j"\nstarting = 2026-01-31T12:00:00Z\n[tables]\nfolder = "t"\n',
            "run.toml:3: 'starting' must be a text, not 2026-01-31T12:00:00+00:00 without quotes",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = ""\n',
            "run.toml:4: 'folder' must be a text, not ''",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "s3:/bucket/tables"\n',
            "run.toml:4: 's3:/bucket/tables' has one slash; write a URI as s3://BUCKET/PATH",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\nkeep = { alert = "1d" }\n',
            "run.toml:5: there is no table 'alert'; keep is of bronze_messages",
        ),
        (
            '[source]\nbrokers = ["a", "b", "a"]\n[tables]\nfolder = "t"\n',
            "run.toml:2: 'brokers' has a twice",
        ),
        (
            '[source]\njournal = "j"\ntopics = ["a/*", "/"]\n[tables]\nfolder = "t"\n',
            "run.toml:3: 'topics': 'a/*,/' has an empty topic; write it like home/*, lab/lamp",
        ),
        (
            '[source]\njournal = "j"\ntopics = ["a/*", "home/+/t"]\n[tables]\nfolder = "t"\n',
            "run.toml:3: 'topics': '+' is no wildcard here but a name; '*' stands for one level: "
            "'home/*/t'",
        ),
        (
            '[source]\njournal = "j"\ntopics = "home/#"\n[tables]\nfolder = "t"\n',
            "run.toml:3: 'topics': '#' is no wildcard here but a name; '*' stands for one level: "
            "'home/*', and below that 'home/*/*', …",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "t"\nkeep = { alerts = "99999999999d" }\n',
            "run.toml:5: 'alerts' must be a time of at most \"36500d\", not '99999999999d'",
        ),
        (
            f'[source]\njournal = "j"\n[tables]\nfolder = "t"\nhistory = "{"9" * 400}s"\n',
            "run.toml:5: 'history' must be a time of at most \"36500d\"",
        ),
        (
            '[source]\njournal = "~nobody-here/j"\n[tables]\nfolder = "t"\n',
            "run.toml:2: 'journal' must be a folder of a user whom this machine knows",
        ),
        (
            '[source]\njournal = "j"\n[tables]\nfolder = "~nobody-here/t"\n',
            "run.toml:4: 'folder' must be a folder of a user whom this machine knows",
        ),
        (f"x = {'[' * 5000}{']' * 5000}\n", "run.toml: this cannot be read: it is nested too deep"),
        (f"x = {'9' * 5000}\n", "run.toml: this cannot be read: Exceeds the limit"),
    ],
)
def test_single_mistakes(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError) as caught:
        load_config(_file(tmp_path, text))
    assert told in str(caught.value)
    assert "secret@" not in str(caught.value)


def test_tables_at_a_uri(tmp_path: Path) -> None:
    text = (
        '[source]\njournal = "j"\n[tables]\nfolder = "s3a://bucket/tables"\ncheckpoint = "here"\n'
        'options = { aws_endpoint_url = "http://127.0.0.1:1" }\n'
    )
    config = load_config(_file(tmp_path, text))
    assert (config.place.uri, config.place.folder) == ("s3://bucket/tables", None)
    assert config.place.options["aws_endpoint_url"] == "http://127.0.0.1:1"
    assert config.checkpoint == tmp_path / "here"


def test_of_several_brokers_only_some_need_an_authority(tmp_path: Path) -> None:
    text = '[source]\nbrokers = ["http://a:1", "https://b:1"]\nca_file = "ca.pem"\n'
    source = load_config(_file(tmp_path, text + '[tables]\nfolder = "t"\n')).source
    assert source_options(source, None)["caFile"] == str(tmp_path / "ca.pem")
    first = source.model_copy(update={"brokers": source.brokers[:1]})  # as alerts are published
    assert "caFile" not in source_options(first, None)
