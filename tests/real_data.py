"""Where the real data sets are, for the tests that read them: beside the project, never in it."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "shared" / "data"


def real(name: str) -> Path:
    """A real data set's file; the test that asks for it is skipped, loudly, where it is absent."""
    if not (DATA / name).exists():
        pytest.skip(f"NOT CHECKED on {name}: the real data sets are not in {DATA}")
    return DATA / name
