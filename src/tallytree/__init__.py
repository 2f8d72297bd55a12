"""tallytree: differentially private counts that add up."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallytree.version import VERSION

if TYPE_CHECKING:
    from tallytree.core.errors import BudgetError as BudgetError
    from tallytree.core.errors import DataError as DataError
    from tallytree.core.errors import ReleaseError as ReleaseError
    from tallytree.core.errors import SpecError as SpecError
    from tallytree.core.errors import TallytreeError as TallytreeError
    from tallytree.domain.categories import Categories as Categories
    from tallytree.domain.categories import Category as Category
    from tallytree.domain.edit_rules import Attribute as Attribute
    from tallytree.domain.edit_rules import Below as Below
    from tallytree.domain.edit_rules import Has as Has
    from tallytree.domain.edit_rules import Implies as Implies
    from tallytree.domain.edit_rules import Role as Role
    from tallytree.domain.edit_rules import SizeClass as SizeClass
    from tallytree.domain.edit_rules import Structure as Structure
    from tallytree.domain.hierarchy import Hierarchy as Hierarchy
    from tallytree.domain.schema import Marginal as Marginal
    from tallytree.domain.schema import Schema as Schema
    from tallytree.planning.prior import Prior as Prior
    from tallytree.planning.report import PlanReport as PlanReport
    from tallytree.planning.report import plan as plan
    from tallytree.privacy.budget import Budget as Budget
    from tallytree.privacy.ledger import Ledger as Ledger
    from tallytree.privacy.measurements import Measurements as Measurements
    from tallytree.privacy.neighbours import HouseholdNeighbours as HouseholdNeighbours
    from tallytree.privacy.neighbours import Neighbours as Neighbours
    from tallytree.privacy.neighbours import PrivacyUnit as PrivacyUnit
    from tallytree.privacy.neighbours import one_entity as one_entity
    from tallytree.privacy.neighbours import one_group as one_group
    from tallytree.privacy.plan import Plan as Plan
    from tallytree.privacy.run import measure as measure
    from tallytree.publish.microdata.population import population_files as population_files
    from tallytree.publish.microdata.synthesis import Synthesis as Synthesis
    from tallytree.publish.microdata.synthesis_run import synthesize as synthesize
    from tallytree.publish.release.answer import Answer as Answer
    from tallytree.publish.release.comparison import Comparison as Comparison
    from tallytree.publish.release.comparison import compare as compare
    from tallytree.publish.release.measurements_file import load_measurements as load_measurements
    from tallytree.publish.release.measurements_file import save_measurements as save_measurements
    from tallytree.publish.release.queries import Query as Query
    from tallytree.publish.release.release_run import release as release
    from tallytree.publish.release.release_run import resume as resume
    from tallytree.publish.release.value import Release as Release
    from tallytree.publish.verify import verify as verify
    from tallytree.synthesis.workload import Workload as Workload
    from tallytree.tables.address import Source as Source
    from tallytree.tables.codebook import schema_from_codebook as schema_from_codebook
    from tallytree.tables.codebook import schema_from_sample as schema_from_sample
    from tallytree.tables.group_sizes import GroupSizes as GroupSizes
    from tallytree.tables.households import Households as Households
    from tallytree.tables.households import read_households as read_households
    from tallytree.tables.reading import read as read

__version__ = VERSION

# The modules with public names. They are loaded when a name is first used, so that `tallytree --help` need not wait for
# engines and compilers; the imports above tell the same to type checkers, and a test holds the two together.
_MODULES = {
    "core.errors": "BudgetError DataError ReleaseError SpecError TallytreeError",
    "domain.categories": "Categories Category",
    "domain.hierarchy": "Hierarchy",
    "domain.edit_rules": "Attribute Role Below Has Implies SizeClass Structure",
    "domain.schema": "Marginal Schema",
    "tables.group_sizes": "GroupSizes",
    "tables.address": "Source",
    "tables.reading": "read",
    "tables.households": "Households read_households",
    "tables.codebook": "schema_from_codebook schema_from_sample",
    "privacy.neighbours": "HouseholdNeighbours Neighbours PrivacyUnit one_entity one_group",
    "privacy.budget": "Budget",
    "privacy.plan": "Plan",
    "privacy.measurements": "Measurements",
    "privacy.run": "measure",
    "privacy.ledger": "Ledger",
    "synthesis.workload": "Workload",
    "planning.prior": "Prior",
    "planning.report": "PlanReport plan",
    "publish.release.answer": "Answer",
    "publish.release.queries": "Query",
    "publish.release.comparison": "Comparison compare",
    "publish.release.value": "Release",
    "publish.release.release_run": "release resume",
    "publish.release.measurements_file": "load_measurements save_measurements",
    "publish.microdata.synthesis": "Synthesis",
    "publish.microdata.synthesis_run": "synthesize",
    "publish.microdata.population": "population_files",
    "publish.verify": "verify",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

# What shows the values of a module in a notebook, where the module itself has no display code.
_PAGES = {"privacy.ledger": "publish.account_page"}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree' has no attribute {name!r}")
    if (page := _PAGES.get(_HOME[name])) is not None:
        import_module(f"tallytree.{page}")
    return getattr(import_module(f"tallytree.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
