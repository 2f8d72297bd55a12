"""The privacy border: units and sensitivities, budgets, exact noise, `measure` and the ledger."""

from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measure import measure
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, Sensitivity, one_entity, one_group
from tallytree.privacy.plan import Plan, Question, every_level

__all__ = [
    "Budget",
    "Ledger",
    "Measurement",
    "Measurements",
    "Neighbours",
    "Plan",
    "PrivacyUnit",
    "Question",
    "Sensitivity",
    "every_level",
    "measure",
    "one_entity",
    "one_group",
]
