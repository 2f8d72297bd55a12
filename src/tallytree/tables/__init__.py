"""Microdata input: any table becomes private counts of groups by leaf region and size, checked and counted in its
engine.

Nothing here prints, logs or raises a value of a private column. Problems are reported as counts and column names.

**The domain of valid data.** The options, the hierarchy, the groups table and the schema are public and fixed. Given
them, a table of any number of rows, including zero, is valid if these conditions hold:

- Each row names a group and one leaf of the hierarchy, unless a rule for rows drops it or gives it a leaf
  (`on_missing`, `on_unknown_region`: see `count.drop_missing`). Its quantity is an integer from
  0 to the bound. If there is an entity column, the row names an entity.
- Each group lies in one leaf, unless groups may be split. If there is a groups table, the leaf is the one listed there.
- Each entity has one row, unless `rows_per_entity` bounds the number of its rows.
- With categories, each group has one listed value of each.

Households are valid if their ids are unique, their cells are values of the schema, and each person lives in a household
of the table, with at most `max_persons` in each (unless `oversize` says whom to leave out). Neighbours are neighbours
within this domain. The domain is closed under removing an entity or a group, so a valid table stays valid. There is one
exception: if a public list of groups leaves categories to the rows, no listed group may become empty.

**What a refusal reveals.** Data outside the domain are refused before any budget is spent, with exact counts of bad
rows. Whether a run is refused therefore depends on private rows, and so does the message. The person who runs the
command sees it, and no budget protects it. A refusal can have these reasons:

- rows without a group, region, entity or household;
- regions or values that are not listed, or region names that stand for several leaves;
- groups in several leaves, groups missing from the groups table, or groups listed there with another region;
- quantities that are not integers within the bound;
- entities or household ids that appear twice, or households with too many persons;
- values that no category lists, groups with several values, or listed groups without any entity where the rows state
  the category;
- files that the engine cannot read, or too little memory or disk space.

No number of valid rows is refused, with one exception: if the regions are taken from the rows (`regions_are_public`), a
table without rows has no regions. This reveals nothing beyond the list of regions, which was declared public.
"""

from __future__ import annotations

from tallytree.tables.group_sizes import GroupSizes, Sealed
from tallytree.tables.problems import InputProblems, Problem
from tallytree.tables.reading import check, read

__all__ = ["GroupSizes", "InputProblems", "Problem", "Sealed", "check", "read"]
