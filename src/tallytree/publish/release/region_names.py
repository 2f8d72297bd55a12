"""`RegionNames`: regions by the ids and names that people write, many of them at a time."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from tallytree.core.arguments import told
from tallytree.core.errors import SpecError
from tallytree.core.numbers import short
from tallytree.domain.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class RegionNames:
    """The ids and names of a hierarchy's regions.

    A branch that was carried down bears its name on several levels and is the same place on all of them.
    """

    hierarchy: Hierarchy

    def find(self, text: object) -> int:
        """One region by id or, where that is unique, by name; others are a SpecError with the nearest names."""
        if not isinstance(text, str):
            raise SpecError(f"{told(text)} is not a region; expected an id or a name, as text")
        if (region := self.where(text)) is not None:
            return region
        ids = self.hierarchy.ids
        if found := self._called(text):
            some = [ids[region] for region in found[:6]]
            more = f" and {len(found) - 6} more" if len(found) > 6 else ""
            raise SpecError(f"{len(found)} regions are called {short(text)}; say which by id: {', '.join(some)}{more}")
        words = {name.casefold(): name for name in (*ids, *self.hierarchy.names)}
        near = [words[word] for word in get_close_matches(text.casefold(), words, n=3, cutoff=0.6)]
        hint = f"did you mean {' or '.join(near)}?" if near else "regions.csv lists ids and names"
        raise SpecError(f"there is no region {short(text)}; {hint}")

    def where(self, text: str) -> int | None:
        """The same, and None for others."""
        if text in self.hierarchy.index:
            return self.hierarchy.index[text]
        found = self._called(text)
        return found[0] if len(found) == 1 else None

    def _called(self, text: str) -> list[int]:
        return self._places.get(text) or self._folded.get(text.casefold(), [])

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for region, name in enumerate(self.hierarchy.names):
            if not self.hierarchy.carried[region]:
                places.setdefault(name, []).append(region)
        return places

    @cached_property
    def _folded(self) -> dict[str, list[int]]:
        folded: dict[str, list[int]] = {}
        for name, regions in self._places.items():
            folded.setdefault(name.casefold(), []).extend(regions)
        return folded
