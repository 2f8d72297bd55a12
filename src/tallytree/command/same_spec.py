"""Is the spec of a run that is resumed the one that it was begun with? A record of it lies beside what was kept.

The record is written before anything is reserved. Paths are as the spec has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.command.spec import Spec
from tallytree.core.errors import ReleaseError
from tallytree.publish.folder import SPEC
from tallytree.publish.reading import read_json
from tallytree.publish.run_folder import RunFolder

PAGE = ("[report] groups", "[report] entities", "[report] map")
# What may change: the ledger is known from the run itself, memory is the machine's affair, the page can be made anew.
FREE = ("[privacy] ledger", "[data] memory_limit", "[households] memory_limit", *PAGE)
BUDGET = ("[privacy] epsilon", "[privacy] rho", "[privacy] delta")


def keep_spec(folder: Path, spec: Spec) -> None:
    """Put the record into the folder of a run, which is made if it is not there."""
    RunFolder(folder).write(SPEC, _record(spec))


def refuse_changed(folder: Path, spec: Spec) -> None:
    """Refuse to resume a run with another spec, and say what differs."""
    if not (folder / SPEC).exists():  # a run that was begun in Python
        return
    before, now = read_json(folder / SPEC), _record(spec)
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    if keys:
        listed = "\n".join(f"  - {key} was {_shown(before.get(key))} and is {_shown(now.get(key))} now" for key in keys)
        raise ReleaseError(
            f"the spec is not the one that this run was begun with:\n{listed}\nPut it back as it was to go on. Nothing "
            f"was spent now. (To give up what was begun, and what it spent, delete {folder}.)"
        )


def _record(spec: Spec) -> dict[str, Any]:
    values = spec.model_dump(by_alias=True)
    record = {key: _plain(value) for key, value in _flat(values) if key not in FREE}
    given = {key.split()[1]: value for key, value in _flat(values) if key in BUDGET}
    amounts = spec.budget.to_json()
    return record | {key: amounts[key.split()[1]] if given[key.split()[1]] is not None else None for key in BUDGET}


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key of every section; what is nested deeper stays together."""
    for section, keys in values.items():
        if isinstance(keys, Mapping):
            yield from ((f"[{section}] {key}", value) for key, value in keys.items())
        elif keys is not None:
            yield section, keys


def _plain(value: Any) -> Any:
    """A value as JSON gives it back; 1.0 and 1 are the same number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(Fraction(value))
    return value


def _shown(value: Any) -> str:
    return "not given" if value is None else repr(value)
