"""A registry file (docs/registry.md) to rules, or to everything that is wrong with it, by line."""

from pathlib import Path
from typing import Final

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.rule_table import RegistryTable
from motemq_pipeline.rules import Registry
from motemq_pipeline.toml_tables import TomlFile

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
    toml = TomlFile.parsed(file, text, "the registry")
    tables = toml.read(RegistryTable, _refusal, toml.line)
    return Registry(
        file, tuple(rule.rule(toml.line(("rule", at))) for at, rule in enumerate(tables.rule))
    )


def _refusal(faults: list[str]) -> PipelineError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    return PipelineError(f"the registry has {count}:\n" + "\n".join(faults))
