"""Specs as TOML files, checked strictly: every mistake is named, an unknown key with the nearest right one."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from tallytree.errors import SpecError

Number = int | Decimal | str


class Section(BaseModel):
    """A table of a spec; its fields are the keys it can have."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Checked = TypeVar("Checked", bound=Section)


def read_toml(file: Path) -> dict[str, Any]:
    """The file's values, numbers with a point as exact decimals."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    except FileNotFoundError:
        raise SpecError(f"there is no spec at {file}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{file} is not a TOML file that can be read: {error}") from None


def load_spec(file: Path, whole: type[Checked]) -> Checked:
    """The file as a checked value; all its mistakes are named at once."""
    values = read_toml(file)
    try:
        return whole.model_validate(values)
    except ValidationError as error:
        mistakes = "\n".join(dict.fromkeys(f"  - {_mistake(dict(item), whole)}" for item in error.errors()))
        raise SpecError(f"{file} has mistakes:\n{mistakes}") from None


def _mistake(item: dict[str, Any], whole: type[Section]) -> str:
    *place, last = [str(part) for part in item["loc"]]
    section = f"[{'.'.join(place)}] " if place else ""
    if item["type"] == "extra_forbidden":
        keys = _keys(place, whole)
        near = get_close_matches(last, keys, n=1, cutoff=0.5)
        return f"{section}unknown key {last!r}; " + (
            f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"
        )
    if item["type"] == "missing":
        what = "section" if not place else "key"
        return f"{section}the {what} {last!r} is missing"
    return f"{section}{last}: {item['msg'].lower()}, not {item['input']!r}"


def _keys(place: list[str], whole: type[Section]) -> list[str]:
    """The keys that the section at a place can have."""
    model: Any = whole
    for part in place:
        names = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in names:
            model = _section_in(names[part].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section_in(annotation: Any) -> Any:
    """The section that a field's type is, or holds."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)
