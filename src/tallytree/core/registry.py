"""Rows by name, and modules of extras.

Rows for comparison only are in the lab, and are imported when one of them is requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from tallytree.core.errors import SpecError

Row = TypeVar("Row")


class Registry(Mapping[str, Row]):
    """The package's own rows first, then those of a module of the lab.

    This is the only way into the lab from outside, apart from the command. An unknown name is looked up in the lab, so
    nothing of the lab is imported for the package's own rows.
    """

    def __init__(self, own: Mapping[str, Row], lab_module: str) -> None:
        self._own, self._lab_module = own, lab_module

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {**self._own, **import_module(f"tallytree.lab.{self._lab_module}").ROWS}

    def __getitem__(self, name: str) -> Row:
        return self._own[name] if name in self._own else self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def import_extra(module: str, purpose: str, install: str) -> Any:
    """Return a module that the base install does not have, or raise a SpecError that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise SpecError(f"{purpose} needs {module.partition('.')[0]}: pip install '{install}'") from None
