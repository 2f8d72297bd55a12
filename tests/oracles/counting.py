"""The obvious twin of `tallytree.tables`: rows are tuples in a list, groups are dictionaries, nothing is clever."""

from __future__ import annotations

from collections import Counter, defaultdict

Path = tuple[str, ...]


def group_size_counts(
    rows: list[tuple[str, Path, int]],
    leaves: list[Path],
    max_size: int,
    *,
    listed: list[tuple[str, Path]] | None = None,
    split: bool = False,
) -> list[list[int]]:
    """Counts `[leaf][size]`. A row is (group, path of its leaf, quantity); `listed` is the public groups table.

    Sizes run from 0 with a public list, otherwise from 1.
    """
    sizes: dict[object, int] = defaultdict(int)
    home: dict[object, Path] = {}
    for group, path in listed or []:
        key = (group, path) if split else group
        assert key not in home
        home[key] = path
        sizes[key] += 0
    for group, path, quantity in rows:
        key = (group, path) if split else group
        assert home.setdefault(key, path) == path
        sizes[key] += quantity
    table = Counter((home[key], min(size, max_size)) for key, size in sizes.items())
    first = 1 if listed is None else 0
    return [[table[leaf, size] for size in range(first, max_size + 1)] for leaf in leaves]
