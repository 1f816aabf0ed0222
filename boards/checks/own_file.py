"""Checks in a file of the user's own: functions ``check_…``, or a ``CHECKS`` as ours have it."""

import importlib.util
import re
import sys
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from boards.checks.declared import Check
from boards.session.plan import STEPS

_PREFIX = "check_"
_NAME = re.compile(r"[^\s,]{1,80}")  # a log's marks end a name at a space, --checks at a comma


class OwnChecksError(Exception):
    """A file of checks is of no use; the text says where and why."""


def load_checks(file: Path) -> list[Check]:
    """Run ``file`` and return its checks, in its order.

    Each function ``check_NAME(board)`` is the check ``NAME``: it passes unless it raises, and may
    return what it measured. ``CHECKS``, a sequence of ``Check``, says more of each. The folder of
    the file is where its imports are looked for, too. Raises ``OwnChecksError``.
    """
    module = _run(file)
    listed = getattr(module, "CHECKS", ())
    if not isinstance(listed, list | tuple):
        raise OwnChecksError(f"{file}: CHECKS is {listed!r:.80}, not a tuple of Check")
    found = list(listed)
    if wrong := [each for each in found if not isinstance(each, Check)]:
        raise OwnChecksError(f"{file}: CHECKS has {wrong[0]!r}, which is no Check")
    named = {each.run for each in found}
    found += [
        Check(name.removeprefix(_PREFIX), value)
        for name, value in vars(module).items()
        if name.startswith(_PREFIX) and callable(value) and value not in named
    ]
    if not found:
        raise OwnChecksError(f"{file}: no check in it: write 'def check_NAME(board): …'")
    for check in found:
        if fault := _name_fault(check.name):
            raise OwnChecksError(f"{file}: check {check.name!r:.120}: {fault}; rename it")
    return found


def _name_fault(name: object) -> str:
    """Return why a name cannot stand for a check in every log and report, "" if it can."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.isprintable():
        return "a name is 1 to 80 characters that can be printed, without a space or a comma"
    return "this is the name of a step of each run" if name in STEPS else ""


def _run(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rig_checks_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise OwnChecksError(f"{file}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, for one, look for their module there
    if (folder := str(file.absolute().parent)) not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        # Of a file with zero bytes it tells neither.
        place = f"{error.filename or file}:{error.lineno or 1}"
        raise OwnChecksError(f"{place}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        places = [each for each in extract_tb(error.__traceback__) if each.filename == str(file)]
        line = f":{places[-1].lineno}" if places else ""
        raise OwnChecksError(f"{file}{line}: {type(error).__name__}: {error}") from None
    return module
