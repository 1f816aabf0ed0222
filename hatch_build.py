"""Compiles the parts of the broker that are not interpreted, if that is possible here, and puts the
JavaScript client among the dashboard's files.

Without a C compiler or Python's headers the package is whole all the same, and slower.
"""

import hashlib
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "host_broker.bus._topic_table",
    "host_broker.net.journal._assembly",
    "host_broker.net.journal._selection",
)
# The dashboard's copy of the JavaScript client is made where there is no checkout to serve it from.
JS_CLIENT = {"client_js/umq.js": "host_broker/dashboard/umq.js"}
EXTENSION = str(sysconfig.get_config_var("EXT_SUFFIX"))


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled modules beside their sources, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; what goes wrong is a warning."""
        root = Path(self.root)
        if version != "editable":  # which is a checkout
            build_data["force_include"].update(
                {str(root / source): packed for source, packed in JS_CLIENT.items()}
            )
        for module in MODULES:
            source = root.joinpath(*module.split(".")).with_suffix(".pyx")
            try:
                compiled = _compiled(module, source)
            except Exception as error:  # whatever a compiler, or the lack of one, may raise
                self.app.display_warning(f"{module} is not compiled, the broker is slower: {error}")
                source.with_suffix(EXTENSION).unlink(missing_ok=True)  # of what it was before
                continue
            build_data["artifacts"].append(compiled.relative_to(root).as_posix())
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def _compiled(module: str, source: Path) -> Path:
    """Return the shared library, compiled anew."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / source.name
        shutil.copy(source, copy)
        extension = Extension(
            module,
            [str(copy)],
            define_macros=[("MOTEMQ_SOURCE", f'"{digest}"')],
            extra_compile_args=["-O2", "-g0"],
        )
        modules = cythonize([extension], build_dir=folder, quiet=True)
        command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
        command.build_lib = command.build_temp = folder
        command.ensure_finalized()
        command.run()
        built = Path(folder, command.get_ext_filename(module))
        compiled = source.with_name(built.name)
        # Not over the old one: a program that has it open would read what it becomes.
        fresh = compiled.with_suffix(".new")
        shutil.copy(built, fresh)
        fresh.replace(compiled)
    return compiled
