"""The registry: ordered rules from path patterns to what a message is."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from motemq_pipeline.errors import PipelineError

BUILT_IN = Path(__file__).with_name("registry.toml")
TELEMETRY, IGNORED = "telemetry", "ignored"
_KEYS = {"path", "is", "encoding"}
_ENCODINGS = {"json"}


@dataclass(frozen=True, slots=True)
class Rule:
    """Messages whose path matches ``path`` are ``kind`` (and encoded as ``encoding``)."""

    path: str
    kind: str
    encoding: str | None


def load_registry(file: Path) -> list[Rule]:
    """Return the rules of a TOML file, in order; raises ``PipelineError`` naming file and rule."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PipelineError(f"the registry {file} cannot be read: {error}") from error
    rules = tables.get("rule")
    if set(tables) != {"rule"} or not isinstance(rules, list):
        raise PipelineError(f"the registry {file} must hold [[rule]] tables and nothing else")
    return [_rule(rule, f"{file}, rule {number}") for number, rule in enumerate(rules, start=1)]


def _rule(rule: Any, where: str) -> Rule:
    if not isinstance(rule, dict) or not {"path", "is"} <= set(rule) <= _KEYS:
        raise PipelineError(f"{where}: needs path and is, may have encoding, and nothing else")
    path, kind, encoding = rule["path"], rule["is"], rule.get("encoding")
    if not isinstance(path, str) or not path:
        raise PipelineError(f"{where}: path must be a text such as 'telemetry/*/*'")
    if kind not in (TELEMETRY, IGNORED):
        raise PipelineError(f"{where}: is must be '{TELEMETRY}' or '{IGNORED}', not {kind!r}")
    if kind == TELEMETRY and encoding not in _ENCODINGS:
        raise PipelineError(f"{where}: telemetry needs encoding = 'json', not {encoding!r}")
    return Rule(path, kind, encoding)


def path_regex(pattern: str) -> str:
    """Return the regular expression of a path pattern: * within a level, ** across levels."""
    pieces = re.split(r"(\*\*|\*)", pattern)
    meaning = {"*": "[^/]*", "**": ".*"}
    return "^" + "".join(meaning.get(piece) or _literal(piece) for piece in pieces) + "$"


def _literal(text: str) -> str:
    # Not re.escape: what it escapes and what Java's regular expressions accept differ.
    return re.sub(r"([\\.\[\]{}()+?^$|])", r"\\\1", text)


def kind_of(path: Column, rules: list[Rule]) -> Column:
    """Return the kind of the first rule that matches ``path``, null where none does."""
    kind = F.lit(None).cast("string")
    for rule in reversed(rules):
        kind = F.when(path.rlike(path_regex(rule.path)), F.lit(rule.kind)).otherwise(kind)
    return kind
