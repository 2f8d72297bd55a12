"""Microdata in: any table becomes private counts of groups by leaf region and size, checked and counted in its engine.

Nothing here prints, logs or raises a value of a private column; problems are reported as counts and column names.

**The domain of valid data.** The options, the hierarchy, the groups table and the schema are public and fixed. Given
them, any number of rows, none included, is a valid table if each row is: it names a group and one leaf of the
hierarchy, the quantity is a whole number from 0 to the bound, an entity is named where there is a column for it; if
each group lies in one leaf (unless it may be split), or in the leaf that the groups table lists for it; and if each
entity has one row (unless `rows_per_entity` bounds them). Valid households are those whose ids are unique, whose cells
are values of the schema, and whose persons live in a household of the table, at most `max_persons` in each (unless
`oversize` says whom to leave out). With categories, each group has one listed value of each. Neighbours are neighbours
within this domain: it is closed under removing an entity or a group, so that a valid table stays valid; with one
exception, a public list of groups that leaves categories to the rows, where no listed group may become empty.

**What a refusal tells.** Data outside of the domain are refused before a budget is spent, with exact counts of bad
rows. So that a run is refused depends on private rows, and so does its message: it is seen by whoever runs the command
and is not protected by any budget. What can lead to it: rows without group, region, entity or household; regions or
values that are not listed; names of several leaves; groups in several leaves, not in the groups table or elsewhere
than there; quantities that are no whole number within the bound; entities or household ids that appear twice;
households with too many persons; values that no category lists, groups with several of them, and listed groups without
any entity where the rows tell the category; files that the engine cannot read; memory or disk that does not suffice.
No number of valid rows is refused, with one exception: where regions are taken from the rows (`regions_are_public`), no
rows are no regions. That tells nothing beyond the list of regions, which was declared public.
"""

from __future__ import annotations

from tallytree.tables.group_sizes import GroupSizes, Sealed
from tallytree.tables.problems import InputProblems, Problem
from tallytree.tables.reading import check, read

__all__ = ["GroupSizes", "InputProblems", "Problem", "Sealed", "check", "read"]
