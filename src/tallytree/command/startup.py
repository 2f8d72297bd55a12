"""What the command leaves unloaded: packages that its libraries load only because they are installed.

pyarrow loads pandas to recognise data frames, and Numba loads SciPy for its linear algebra. The command uses neither,
and loading them takes longer than releasing a small table.
"""

from __future__ import annotations

import sys
from typing import Any

UNUSED = {"pandas": ("pyarrow", "tallytree"), "scipy": ("numba",)}  # packages, and who is to do without them
ENGINES = ("ibis", "pyspark")  # which need pandas


class Unused:
    """A finder of modules that does not find these for these importers."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse the import, or leave it to the finders that follow."""
        if name not in UNUSED or any(engine in sys.modules for engine in ENGINES):
            return
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        # pyarrow is compiled, so that its own frames are not seen: the first one is of whoever called it.
        if frame.f_globals.get("__name__", "").split(".")[0] in UNUSED[name]:
            raise ModuleNotFoundError(f"{name} is not loaded by the command", name=name)


def skip_unused() -> None:
    """Let this process do without what it does not use."""
    sys.meta_path.insert(0, Unused())
