"""What must hold between the parts of a rule, so that its messages can become readings."""

from collections.abc import Iterator
from typing import Final

from motemq_pipeline.rules import JSON, NUMBER, STRUCT, Field, Rule, wanted_fields

_Fault = tuple[tuple[str, ...], str]  # where in the rule's table, and what

_REMEDIES: Final = {
    "board": "write {board} in 'path', or fields = { board = \"…\" }",
    "sensor": "write {sensor} in 'path', or fields = { sensor = \"…\" }, or [rule.sensors.NAME] "
    "with its field",
    "value": 'write fields = { value = "…" }, or [rule.sensors.NAME] with its field',
}


def violations(rule: Rule) -> Iterator[_Fault]:
    """Yield what is wrong with a telemetry rule whose every part is right by itself."""
    yield from _sources(rule)
    yield from _payload(rule)


def _sources(rule: Rule) -> Iterator[_Fault]:
    """Every column has at most one source, and what a reading must have has one."""
    sources = {name: ["the path"] for name in rule.pattern.names}
    for column in rule.constants:
        sources.setdefault(column, []).append("'constants'")
    for column in rule.fields:
        sources.setdefault(column, []).append("'fields'")
    for column, given in sources.items():
        if len(given) > 1:
            yield ("fields", column), f"'{column}' is given by {' and by '.join(given)}"
    needed = ["board"] if rule.wide else ["board", "sensor", "value"]
    if rule.wide:
        for name, sensor in rule.sensors.items():
            if sensor.field is None:
                yield ("sensors", name), f"'{name}' needs a 'field', as its neighbours"
        for column in sorted({"sensor", "value"} & sources.keys()):
            yield ("fields", column), f"sensors have fields: there can be no '{column}'"
    for column in needed:
        if column not in sources:
            yield (), f"nothing gives '{column}': {_REMEDIES[column]}"


def _payload(rule: Rule) -> Iterator[_Fault]:
    """What is asked of a payload is possible."""
    wanted = [("fields", column, of) for column, of in rule.fields.items() if of.name]
    wanted += [("expect", name, Field(name)) for name in rule.expect]
    wanted += [
        ("sensors", name, sensor.field) for name, sensor in rule.sensors.items() if sensor.field
    ]
    known: dict[str, str] = {}
    for key, inside, found in wanted:
        if rule.encoding == NUMBER:
            yield (key, inside), f"an encoding '{NUMBER}' has no fields"
        elif rule.encoding == STRUCT:
            if found.name not in rule.names:
                yield (key, inside), f"'{found.name}' is none of 'names'"
        elif not all(found.keys):
            yield (key, inside), f"'{found.name}' is no field; one within another is a.b"
        elif known.setdefault(_as_known(rule, found), found.name) != found.name:
            yield (key, inside), f"'{found.name}' differs by case only from another"
    yield from _types(rule)
    for name in known.values():
        if any(other.startswith(f"{name}.") for other in known.values()):
            yield ("fields",), f"'{name}' cannot be a value and have fields within it"


def _types(rule: Rule) -> Iterator[_Fault]:
    """A field of JSON is read once, as one type."""
    types: dict[str, str] = {}
    for field, kind in wanted_fields(rule):
        if rule.encoding == JSON and types.setdefault(field.name, kind) != kind:
            yield (), f"'{field.name}' cannot be both a {types[field.name]} and a {kind}"


def _as_known(rule: Rule, field: Field) -> str:
    # Spark takes names that differ by case only for the same.
    return field.name.lower() if rule.encoding == JSON else field.name
