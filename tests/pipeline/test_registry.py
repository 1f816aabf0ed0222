"""Registry files: what is read, and every fault with its line."""

import codecs
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motemq_pipeline.decoding import decode
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.registry import BUILT_IN, load_registry
from motemq_pipeline.rules import IGNORED, TELEMETRY, Field, Sensor, pattern
from motemq_pipeline.toml_tables import lines_of
from tests.pipeline.payloads import write_registry

_GOOD = """
[[rule]]
path = "telemetry/{board}/{sensor}"
is = "telemetry"
encoding = "json"
fields = { value = "v" }
"""


def _faults(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "registry.toml"
    file.write_text(text)
    with pytest.raises(PipelineError) as caught:
        load_registry(file)
    return str(caught.value).replace(f"{file}:", "").splitlines()[1:]


def test_the_built_in_registry_tells_telemetry_from_checks() -> None:
    registry = load_registry(BUILT_IN)
    kinds = {
        path: rule.kind if (rule := registry.rule_for(path)) else None
        for path in (
            "telemetry/b/s",
            "lightmq/b/up",
            "lightmq/b.check/up",
            "check/a/b",
            "home/a",
            "telemetry/b",
        )
    }
    assert kinds == {
        "telemetry/b/s": TELEMETRY,
        "lightmq/b/up": TELEMETRY,
        "lightmq/b.check/up": IGNORED,
        "check/a/b": IGNORED,
        "home/a": None,
        "telemetry/b": None,
    }


def test_a_rule_is_read_whole(tmp_path: Path) -> None:
    registry = load_registry(write_registry(tmp_path / "registry.toml"))
    narrow, wide = registry.rules[6:8]
    assert (narrow.pattern.names, narrow.layout, narrow.time_unit) == (
        ("sensor",), "<Iqdhh8s", "ms",
    )  # fmt: skip
    assert narrow.fields["time"] == Field("ts", required=False)
    assert narrow.sensors["air"] == Sensor("air", None, "C", 0.5, -10.0, -40.0, 60.0)
    assert (narrow.wide, wide.wide) == (False, True)
    assert wide.sensors["humidity"].field == Field("h", required=False)
    assert registry.rule_for("wide/struct/b") is wide


@pytest.mark.parametrize(
    ("changed", "line", "told"),
    [
        ('is = "telemetri"', 4, "'is' must be 'telemetry' or 'ignored', not 'telemetri'"),
        ('encoding = "xml"', 5, "'encoding' must be one of json, cbor, msgpack, struct, number"),
        ('path = "a/{boad}/{sensor}"', 3, "a path gives {board} and {sensor}, not {boad}"),
        ('path = "a/{board/{sensor}"', 3, "a brace is open"),
        ('path = "a/{board}/{board}"', 3, "a column is there twice"),
        ('path = "a/{board}"', 2, "nothing gives 'sensor': write {sensor} in 'path'"),
        ('path = "+/a+/#"', 3, "'path': '+' is no wildcard here but a name; write '*/a+/**'"),
        ('path = ""', 3, "'path' must be a text such as 'telemetry/{board}/*', not ''"),
        ("fields = {}", 2, "nothing gives 'value'"),
        ('fields = { value = "v", board = "b" }', 6, "'board' is given by the path and by"),
        ('fields = { value = "v", valeu = "v" }', 6, "'valeu' is no column of a reading"),
        ('fields = { value = "?" }', 6, "'value' must be the name of a field, not '?'"),
        ('fields = { value = "a..b" }', 6, "'a..b' is no field; one within another is a.b"),
        ('fields = { value = "a", seq = "a.b" }', 6, "cannot be a value and have fields within it"),
        ('fields = { value = "a", seq = "a" }', 2, "'a' cannot be both a long and a double"),
        ("fields = { value = 5 }", 6, "'value' must be a text, not 5"),
        ("fields = 5", 6, "'fields' must be a table, not 5"),
    ],
)  # fmt: skip
def test_a_fault_has_its_line(tmp_path: Path, changed: str, line: int, told: str) -> None:
    key = changed.split(" ")[0]
    text = "\n".join(changed if row.startswith(f"{key} =") else row for row in _GOOD.split("\n"))
    assert text != _GOOD
    faults = _faults(tmp_path, text)
    assert any(fault.startswith(f"{line}: ") and told in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("added", "line", "told"),
    [
        ("silent_after = 3", 7, "'silent_after' is unknown here; do you mean 'silent_after_s'?"),
        ("silent_after_s = 0", 7, "'silent_after_s' must be above 0, not 0"),
        ("silent_after_s = 1e13", 7, "'silent_after_s' must be at most 1e+12"),
        ("max_late_s = 1e300", 7, "'max_late_s' must be at most 1e+12, not 1e+300"),
        ("end = 7", 7, "'end' must be the name of a sensor, not 7"),
        ("max_late_s = nan", 7, "'max_late_s' must be finite"),
        ("time_unit = ['s']", 7, "'time_unit' must be one of s, ms, us, ns, iso8601, not ['s']"),
        ("time_unit = 's'", 7, "'time_unit' is of the field that 'fields' calls 'time'"),
        ("layout = '<I'", 7, "'layout' is of encoding 'struct'"),
        ("expect = { v = 1.5 }", 7, "'v' must be an integer or a text, not 1.5"),
        (f"expect = {{ v = {2**63} }}", 7, "'v' must be an integer of 64 bits, not 92233"),
        (f"constants = {{ unit = '{'x' * 201}' }}", 7, "at most 200 characters, not 201"),
        (f"[rule.sensors.{'x' * 201}]", 7, "a name has at most 200 characters, not 201"),
        ("[rule.sensors.'']", 7, "a sensor's name is empty"),
        (f"[rule.sensors.a]\nunit = '{'x' * 201}'", 8, "at most 200 characters, not 201"),
        ("constants = { seq = '1' }", 7, "a constant is one of board, sensor, unit"),
        ("sensors.a = 1", 7, "'a' must be a table, not 1"),
        ("[rule.sensors.a]\nmin = 3\nmax = 3", 9, "'max' 3 must be above 'min' 3"),
        ("[rule.sensors.a]\nhysteresis = 1", 8, "'hysteresis' is of a 'min' or a 'max'"),
        ("[rule.sensors.a]\nscale = 0", 8, "'scale' must be a number other than 0, not 0"),
        (f"[rule.sensors.a]\nmin = 1{'0' * 400}", 8, "'min' must be finite, not 1000"),
        ("[rule.sensors.a]\nfield = '?'", 8, "'field' must be the name of a field, not '?'"),
        ("[rule.sensors.a]\nfield = ''", 8, "'field' must be a text, not ''"),
        ("[rule.sensors.a]\nfield = 't'", 6, "sensors have fields: there can be no 'value'"),
        ("[rule.sensors.a]\nfild = 't'", 8, "'fild' is unknown here; do you mean 'field'?"),
        ("[rules]", 7, "'rules' is unknown here; do you mean 'rule'?"),
        (_GOOD, 9, "line 2 has a rule for this path already"),
        ("[[rule]]\npath = 'x'\nis = 'ignored'\nencoding = 'json'", 10, "has no 'encoding'"),
    ],
)
def test_what_is_added_is_checked(tmp_path: Path, added: str, line: int, told: str) -> None:
    faults = _faults(tmp_path, _GOOD + added + "\n")
    assert any(fault.startswith(f"{line}: ") and told in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("layout", "names", "line", "told"),
    [
        ("'IhH'", "['v', 'a', 'b']", 6, "'layout' must begin with < (little endian) or >"),
        ("'<I?'", "['v', 'a']", 6, "'layout' must begin with < (little endian) or >"),
        ("'<99999x'", "[]", 6, "'layout' is longer than 65536 bytes"),
        ("'<Id'", "['v']", 7, "'layout' has 2 values, 'names' has 1"),
        ("'<Id'", "['v', 'v']", 7, "'names' has a name twice"),
        ("'<Id'", "'v'", 7, "'names' must be a list of texts"),
        ("'<Id'", "['a', 'b']", 8, "'v' is none of 'names'"),
        ("'<4s'", "['v']", 6, "'v' of 'layout' is not a double"),
    ],
)
def test_a_layout_is_checked(tmp_path: Path, layout: str, names: str, line: int, told: str) -> None:
    head = "\n[[rule]]\npath = '{board}/{sensor}'\nis = 'telemetry'\nencoding = 'struct'\n"
    faults = _faults(
        tmp_path, f"{head}layout = {layout}\nnames = {names}\nfields = {{ value = 'v' }}\n"
    )
    assert any(fault.startswith(f"{line}: ") and told in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("layout", "fields", "added", "told"),
    [
        ("<If", ", seq = 'n'", "", "'n' of 'layout' is not a long"),
        ("<I4s", ", t_ms = 'n?'", "", "'n' of 'layout' is not a long"),
        ("<If", ", unit = 'n'", "", "'n' of 'layout' is not a string"),
        ("<If", "", "expect = { n = 1 }", "'n' of 'layout' is not a long"),
    ],
)
def test_values_of_a_layout_have_the_types_that_are_wanted(
    tmp_path: Path, layout: str, fields: str, added: str, told: str
) -> None:
    head = "[[rule]]\npath = '{board}/{sensor}'\nis = 'telemetry'\nencoding = 'struct'\n"
    head += f"names = ['v', 'n']\n{added}\nfields = {{ value = 'v'{fields} }}\n"
    assert _faults(tmp_path, f"{head}layout = '{layout}'\n") == [f"8: {told}"]


def test_fields_may_differ_by_case_only(tmp_path: Path) -> None:
    (tmp_path / "registry.toml").write_text(_GOOD.replace('"v"', '"t", seq = "T"'))
    (rule,) = load_registry(tmp_path / "registry.toml").rules
    assert decode(rule)("telemetry/b/s", b'{"t": 1.5, "T": 7}') == [
        ("b", "s", 7, None, None, 1.5, None)
    ]


def test_all_faults_are_told_at_once_in_order(tmp_path: Path) -> None:
    text = _GOOD.replace("json", "xml").replace('telemetry"', 'telemetri"') + "colour = 1\n"
    assert [fault.split(":")[0] for fault in _faults(tmp_path, text)] == ["4", "5", "7"]
    # What is wrong with one rule, and between the parts of another.
    text += _GOOD.replace("telemetry/", "lab/").replace("{sensor}", "air")
    assert [fault.split(":")[0] for fault in _faults(tmp_path, text)] == ["4", "5", "7", "9"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[[rule]]\npath = \n", "registry.toml:2: the registry is not TOML"),
        (b"[[rule]]\npath = 'a", "registry.toml:2: the registry is not TOML"),
        (b"\xff", "cannot be read"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "the registry cannot be read: it is nested too deep"),
        (b"x = " + b"9" * 5000, "the registry cannot be read: Exceeds the limit"),
        (b"#" * 2**20 + b"\n", "is longer than 1048576 bytes"),
        (b"", "registry.toml:1: a registry is a list of [[rule]] tables"),
        (b"\n\nrule = 5", "registry.toml:3: a registry is a list of [[rule]] tables"),
    ],
)
def test_what_is_no_registry_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "registry.toml").write_bytes(content)
    with pytest.raises(PipelineError) as caught:
        load_registry(tmp_path / "registry.toml")
    assert told in str(caught.value)
    with pytest.raises(PipelineError, match="cannot be read"):
        load_registry(tmp_path / "missing.toml")


def test_a_registry_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "registry.toml").write_bytes(codecs.BOM_UTF8 + _GOOD.lstrip().encode())
    assert len(load_registry(tmp_path / "registry.toml").rules) == 1


def test_the_example_in_docs_is_a_registry(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "registry.md").read_text()
    ((example),) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "registry.toml").write_text(example)
    rules = load_registry(tmp_path / "registry.toml").rules
    assert [rule.pattern.text for rule in rules] == [
        "greenhouse/*/air",
        "field/{board}",
        "home/{board}/{sensor}",
        "home/**",
    ]
    assert decode(rules[1])("field/b-7", struct.pack("<IhH", 18, 2150, 3300)) == [
        ("b-7", "temperature", 18, None, "C", 21.5, None),
        ("b-7", "battery", 18, None, "V", pytest.approx(3.3), None),
    ]


def test_lines_are_found_in_every_form_of_toml() -> None:
    text = """# [not.a.table]
a.b = 1
c = { d = 1, e = [{ f = 2 }] }
g = [
  "x",  # [y]
]
h = '''
[i]
j = 1
'''
[[k]]
[k.l]
"m n" = 1
[[k]]
o = 1
  [k.l]
  p = 2
"""
    places = lines_of(text)
    wanted = {
        ("a", "b"): 2, ("c", "d"): 3, ("c", "e", 0, "f"): 3, ("g",): 4, ("h",): 7, ("k", 0): 11,
        ("k", 0, "l", "m n"): 13, ("k", 1, "o"): 15, ("k", 1, "l"): 16, ("k", 1, "l", "p"): 17,
    }  # fmt: skip
    assert {place: places[place] for place in wanted} == wanted
    assert ("i",) not in places


@given(st.text("ab/*{}.", max_size=12), st.text("ab/.", max_size=8))
def test_a_pattern_matches_what_its_parts_say(text: str, path: str) -> None:
    try:
        found = pattern(text)
    except ValueError:
        assert "{" in text or "}" in text
        return
    matched = found.match(path)
    if not set("*{}") & set(text):
        assert (matched is not None) == (text == path)
    if matched is not None:
        assert all(value and "/" not in value for value in matched.values())
