"""A registry file (docs/registry.md) to rules, or to everything that is wrong with it, by line."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.rule_table import Faults, RuleTable
from motemq_pipeline.rules import Registry, Rule
from motemq_pipeline.toml_lines import fault_line, lines_of

BUILT_IN = Path(__file__).with_name("registry.toml")
_MAX_FILE_BYTES: Final = 1024 * 1024


def load_registry(file: Path) -> Registry:
    """Return the rules of a TOML file, in order.

    Raises ``PipelineError`` with every fault of the file, each with its line.
    """
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise PipelineError(f"the registry {file} is longer than {_MAX_FILE_BYTES} bytes")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"the registry {file} cannot be read: {error}") from error
    # As tomllib reads it: a line ends with LF or CR LF.
    text = text.replace("\r\n", "\n")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = f"{file}:{fault_line(error, text)}"
        raise PipelineError(f"{where}: the registry is not TOML: {error}") from error
    faults = Faults(lines_of(text))
    rules = _rules(tables, faults)
    if faults.found:
        told = [f"{file}:{line}: {fault}" for line, fault in sorted(faults.found)]
        count = "a fault" if len(told) == 1 else f"{len(told)} faults"
        raise PipelineError(f"the registry has {count}:\n" + "\n".join(told))
    return Registry(file, rules)


def _rules(tables: Mapping[str, Any], faults: Faults) -> tuple[Rule, ...]:
    faults.unknown((), tables, ("rule",))
    found = tables.get("rule")
    if not isinstance(found, list) or not all(isinstance(rule, dict) for rule in found):
        faults.add(("rule",), "a registry is a list of [[rule]] tables")
        return ()
    rules = tuple(RuleTable(faults, ("rule", at), rule).rule() for at, rule in enumerate(found))
    paths: dict[str, Rule] = {}
    for at, rule in enumerate(rules):
        if (earlier := paths.setdefault(rule.pattern.text, rule)) is not rule:
            taken = f"line {earlier.line} has a rule for this path already"
            faults.add(("rule", at, "path"), taken)
    return rules
