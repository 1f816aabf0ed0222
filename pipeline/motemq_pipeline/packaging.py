"""Our code for Spark's executors: ``spark-submit --py-files``, ``spark.addPyFile``."""

import zipfile
from pathlib import Path

import pyspark_motemq

_SUBMITTED = """# spark-submit --py-files motemq.zip motemq_run.py run CONFIG
import sys

# Executors take the zip; this machine has motemq installed, with all it needs.
sys.path = [entry for entry in sys.path if not entry.endswith("motemq.zip")]

from motemq_pipeline.cli import command

command()
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's first moment: the same code makes the same file


def write_package(file: Path) -> Path:
    """Write the installed ``pyspark_motemq`` and ``motemq_pipeline`` as a zip; return ``file``.

    What they need must be installed where executors run: msgspec, datasketches, and pyspark[sql] of
    the same release, which brings pandas, pyarrow and numpy.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in (Path(__file__).parent, Path(str(pyspark_motemq.__file__)).parent):
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    name = str(path.relative_to(root.parent))
                    archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    return file


def write_submission(folder: Path) -> list[Path]:
    """Write what ``spark-submit`` takes, ``motemq.zip`` and ``motemq_run.py``; return them."""
    program = folder / "motemq_run.py"
    package = write_package(folder / "motemq.zip")
    program.write_text(_SUBMITTED)
    return [package, program]
