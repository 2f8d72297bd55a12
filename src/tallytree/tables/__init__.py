"""Microdata in: any table becomes private counts of groups by leaf region and size, checked and counted in its engine.

Nothing here prints, logs or raises a value of a private column; problems are reported as counts and column names.
"""

from __future__ import annotations

from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.problems import InputProblems, Problem
from tallytree.tables.reading import check, read
from tallytree.tables.sealed import Sealed

__all__ = ["GroupSizes", "InputProblems", "Problem", "Sealed", "check", "read"]
