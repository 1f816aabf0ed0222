"""What made the tables, and when: ``about.json`` beside them."""

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from motemq_pipeline.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ABOUT = "about.json"


def write_about(spark: "SparkSession", place: Storage) -> None:
    """Say beside the tables what made them."""
    property_of = "java_method('java.lang.System', 'getProperty', 'java.version')"
    (java,) = spark.sql(f"SELECT {property_of}").collect()[0]
    about = {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "motemq": version("motemq"),
        "spark": spark.version,
        "java": str(java),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "deltalake": version("deltalake"),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    place.write_bytes(ABOUT, (json.dumps(about, indent=1) + "\n").encode())


def read_about(place: Storage) -> dict[str, str]:
    """Return what was said, nothing if nothing was."""
    data = place.read_bytes(ABOUT)
    found: dict[str, str] = json.loads(data) if data else {}
    return found
