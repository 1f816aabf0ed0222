"""The dashboard's files: vendored ones are as published, and the pure modules do what they say."""

import json
import subprocess
from pathlib import Path
from typing import Any

import cbor2
import pytest

import host_broker.dashboard
from boards.virtual.rp2040.node import find_node
from host_broker.printable import printable_lines
from tests.host_broker.dashboard.packages import node_modules
from tests.hostile_names import HOSTILE

_PAGE = Path(host_broker.dashboard.__file__).parent
_VENDORED = {
    "preact.js": "preact/dist/preact.mjs",
    "preact-hooks.js": "preact/hooks/dist/hooks.mjs",
    "preact-LICENSE.txt": "preact/LICENSE",
    "htm.js": "htm/dist/htm.mjs",
    "htm-LICENSE.txt": "htm/LICENSE",
    "uplot.js": "uplot/dist/uPlot.esm.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
    "uplot-LICENSE.txt": "uplot/LICENSE",
}


def test_vendored_files_are_as_they_were_published() -> None:
    packages = node_modules()
    assert {path.name for path in (_PAGE / "vendor").iterdir()} == set(_VENDORED)
    for name, published in _VENDORED.items():
        expected = (packages / published).read_bytes()
        if name == "preact-hooks.js":  # a page has no bare names of modules
            assert expected.count(b'from"preact"') == 1
            expected = expected.replace(b'from"preact"', b'from"./preact.js"')
        assert (_PAGE / "vendor" / name).read_bytes() == expected, name


def _asked(module: str, expression: str, given: Any, tmp_path: Path) -> Any:
    """Return what an expression about ``m``, a module of the page, and ``given`` is in Node."""
    script = tmp_path / "ask.mjs"
    script.write_text(
        f"import * as m from {json.dumps((_PAGE / module).as_uri())};\n"
        f"import * as d from {json.dumps((_PAGE / 'decode.js').as_uri())};\n"
        f"const given = {json.dumps(given)};\n"
        f"console.log(JSON.stringify({expression}));\n"
    )
    node = [str(find_node().node), "--no-warnings", "--expose-gc", str(script)]
    done = subprocess.run(node, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


_VIEW = """given.map(([hex, format]) => {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  try { const {format: found, text} = m.view(bytes, format); return [found, text]; }
  catch (error) { return [error instanceof m.NotDecodable ? "no" : String(error), ""]; }
})"""


def test_binary_payloads_are_read(tmp_path: Path) -> None:
    values = [
        {"temp": 21.5, "on": True, "none": None, "list": [1, -2, 2**40, -(2**33)]},
        {"bytes": b"\xff\x00", "text": "ä", "big": 2**63, "half": 1.5, "deep": [[[]]]},
        [{}, [], "", 0.1, -1, 255, 256, 65536, 2**32],
    ]
    for value in values:
        encoded = cbor2.dumps(value, canonical=True).hex()
        ((found, text),) = _asked("decode.js", _VIEW, [[encoded, "auto"]], tmp_path)
        assert found == "CBOR"
        spaceless = "".join(text.split())
        if b"\xff\x00" not in (value.values() if isinstance(value, dict) else ()):
            assert json.loads(text) == value
        else:
            assert "h'ff00'" in spaceless and '"big":9223372036854775808' in spaceless


@pytest.mark.parametrize(
    ("encoded", "format", "expected"),
    [
        ("82a474656d70cb4035800000000000a16181c3ff", "auto", '{"temp":21.5,"a":{true:-1}}'),
        ("dc000201c0", "MessagePack", "[1,null]"),
        ("c403ff0001", "MessagePack", "h'ff0001'"),
        ("d6ff00000000", "MessagePack", "ext-1(h'00000000')"),
        ("cfffffffffffffffff", "MessagePack", "18446744073709551615"),
        ("d3ffffffffffffffff", "MessagePack", "-1"),
        ("9f018202039f0405ffff", "CBOR", "[1,[2,3],[4,5]]"),
        ("5f42010243030405ff", "CBOR", "h'0102030405'"),
        ("c11a514b67b0", "CBOR", "1(1363896240)"),
        ("f93c00", "CBOR", "1"),
        ("f90001", "CBOR", "5.960464477539063e-8"),
        ("32312e35", "auto", "21.5"),
        ("7b2261223a317d", "auto", '{"a":1}'),
        # What JavaScript's own values do not keep: long numbers, and members of one name.
        (
            b'{"id":12345678901234567890,"x":1e999}'.hex(),
            "auto",
            '{"id":12345678901234567890,"x":1e999}',
        ),
        (b'{"a":1,"a":2.50}'.hex(), "JSON", '{"a":1,"a":2.50}'),
        ("ff00", "auto", "000000ff00.."),
        ("", "auto", ""),
    ],
)
def test_a_payload_is_shown(tmp_path: Path, encoded: str, format: str, expected: str) -> None:
    ((_, text),) = _asked("decode.js", _VIEW, [[encoded, format]], tmp_path)
    assert "".join(text.split()) == expected


def test_json_has_a_line_for_each_item(tmp_path: Path) -> None:
    """As Python writes it, whatever its texts have in them."""
    value = {"a": [1, [], {}, [[]], {"b": None}], 'q"\\': '{[,:]}\\"\n', "": [True, -0.5], "ä": "é"}
    given = [[json.dumps(value, separators=(",", " : ")).encode().hex(), "JSON"]]
    given += [[each.encode().hex(), "JSON"] for each in ("[]", ' "x" ', "[" * 9000 + "]" * 9000)]
    (_, shown), (_, empty), (_, text), (found, deep) = _asked("decode.js", _VIEW, given, tmp_path)
    assert shown == json.dumps(value, indent=2, ensure_ascii=False)
    assert (empty, text) == ("[]", '"x"')
    assert found == "JSON" and len(deep) < 100_100


def test_a_number_is_finite_or_none(tmp_path: Path) -> None:
    given = ["21.5", '{"value":2}', '{"x":3}', "1e999", '{"value":1e999}', '{"x":-1e999}', "NaN"]
    numbers = _asked("decode.js", "given.map(m.numberIn)", given, tmp_path)
    assert numbers == [21.5, 2, 3, None, None, None, None]
    kinds = _asked("decode.js", "given.map((each) => typeof m.numberIn(each))", given, tmp_path)
    assert kinds == ["number"] * 3 + ["object"] * 4  # JSON has null for Infinity, too


def test_what_was_measured_is_told_as_precisely_as_it_fits(tmp_path: Path) -> None:
    given = [0, 21.57, -7, 0.00125, 3e-9, 1013.25, 123456.789, 5e15, -1.7e308, 1 / 3]
    assert _asked("format.js", "given.map(m.reading)", given, tmp_path) == [
        *("0", "21.57", "-7", "0.00125", "3e-9"),
        *("1013.25", "123457", "5e+15", "-1.7e+308", "0.333333"),
    ]


def test_no_payload_makes_the_page_suffer(tmp_path: Path) -> None:
    hostile = [
        *("81" * 100_000, "91" * 100_000, "dd7fffffff", "9b7fffffffffffffff", "5b7fffffffffffffff"),
        *("df7fffffff", "bf01ff", "1c", "ff", "c1", "9f" * 40 + "ff" * 40, "5f01ff", "a1"),
    ]
    given = [[each, format] for each in hostile for format in ("CBOR", "MessagePack")]
    answers = _asked("decode.js", _VIEW, given, tmp_path)
    assert {found for found, _ in answers} <= {"no", "CBOR", "MessagePack"}
    assert sum(found == "no" for found, _ in answers) > len(hostile)
    long = [["78" * 300_000, "text"], ["00" * 100_000, "hex"]]
    (_, text), (_, dump) = _asked("decode.js", _VIEW, long, tmp_path)
    assert len(text) < 100_100 and "200000 more" in text
    assert len(dump) < 30_000 and "95904 more bytes" in dump


def test_text_is_made_harmless_as_everywhere(tmp_path: Path) -> None:
    shown = _asked("printable.js", "given.map(m.printable)", list(HOSTILE), tmp_path)
    assert shown == [printable_lines(each) for each in HOSTILE]


# ---- what is known of topics ----

_TAKE = """(() => {
  const topics = new m.Topics();
  const publish = (topic, payload, more = {}) => ({
    topic, payload, at: 1, retained: false, replaced: 0, properties: {}, ...more });
  return EXPRESSION;
})()"""


def _topics(expression: str, tmp_path: Path, given: Any = None) -> Any:
    return _asked("topics.js", _TAKE.replace("EXPRESSION", expression), given, tmp_path)


def test_the_tree_has_each_level_once_and_in_order(tmp_path: Path) -> None:
    names = ["b/x", "a/b/c", "a/b", "a//d", "b", "constructor/__proto__", "motemq/echo/1"]
    rows = _topics(
        """(topics.take(given.map((name) => publish(name, "1"))),
        topics.rows(null, "").map(({node, depth, position, siblings}) =>
          [node.path, depth, position, siblings, node.topic !== null, node.below]))""",
        tmp_path,
        names,
    )
    assert rows == [
        ["a", 0, 1, 3, False, 3],
        ["a/", 1, 1, 2, False, 1],
        ["a//d", 2, 1, 1, True, 1],
        ["a/b", 1, 2, 2, True, 2],
        ["a/b/c", 2, 1, 1, True, 1],
        ["b", 0, 2, 3, True, 2],
        ["b/x", 1, 1, 1, True, 1],
        ["constructor", 0, 3, 3, False, 1],
        ["constructor/__proto__", 1, 1, 1, True, 1],
    ]


def test_only_what_is_open_or_asked_for_is_a_row(tmp_path: Path) -> None:
    paths = "({node}) => node.path"
    found = _topics(
        f"""(topics.take(["home/hall/lamp", "home/kitchen/lamp", "x/y"].map(
          (name) => publish(name, "1"))),
        [topics.rows(new Set(), "").map({paths}), topics.rows(new Set(["home"]), "").map({paths}),
         topics.rows(new Set(), "LAMP kit").map({paths}), topics.rows(new Set(), "no").length])""",
        tmp_path,
    )
    assert found == [
        ["home", "x"],
        ["home", "home/hall", "home/kitchen", "x"],
        ["home", "home/kitchen", "home/kitchen/lamp"],
        0,
    ]


def test_what_is_remembered_of_topics_is_limited(tmp_path: Path) -> None:
    count, not_remembered, kept, length, numbers = _topics(
        """(topics.take(Array.from({length: m.MOST_TOPICS + 5}, (_, n) => publish(`t/${n}`, "1"))),
        topics.take([publish("t/0", "x".repeat(1e6))]),
        topics.take(Array.from({length: 500}, (_, n) => publish("t/1", `${n}`))),
        [topics.all.size, topics.notRemembered, topics.all.get("t/0").payload.length,
         topics.all.get("t/0").length, topics.all.get("t/1").numbers])""",
        tmp_path,
    )
    assert (count, not_remembered) == (20_000, 5)
    assert (kept, length) == (16_384, 1_000_000)
    assert numbers == list(range(440, 500))


def test_what_is_left_of_a_long_payload_does_not_hold_the_whole(tmp_path: Path) -> None:
    """To V8 a part of a text is a view of the text."""
    before, after, shown = _topics(
        """(() => {
          const long = (n) => JSON.parse(JSON.stringify(`${n}`.padEnd(1e6, "x")));
          gc();
          const before = process.memoryUsage().heapUsed;
          const lines = [];
          for (let n = 0; n < 200; n++) {
            topics.take([publish(`t/${n}`, long(n))]);
            lines.push(d.oneLine(long(n)));
          }
          gc();
          return [before, process.memoryUsage().heapUsed, lines.length + topics.all.size];
        })()""",
        tmp_path,
    )
    assert shown == 400
    assert after - before < 20_000_000  # 400 MB, if they held the whole


def test_what_was_left_out_counts_and_what_was_retained_does_not(tmp_path: Path) -> None:
    assert _topics(
        """(topics.take([publish("t", "1", {retained: true})]),
        topics.take([publish("t", "2", {replaced: 9}), publish("t", "3")]),
        [topics.all.get("t").count, topics.all.get("t").retained])""",
        tmp_path,
    ) == [11, True]
