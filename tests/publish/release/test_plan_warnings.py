"""What a release warns of before it spends: noise that need not be, and a unit that is not what was meant."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.publish.strength import PlanWarning
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.trees import even_tree


def private_of(*regions):
    tree = even_tree(*regions)
    return GroupSizes(tree, 5, Sealed(np.random.default_rng(1).integers(0, 9, (tree.leaf_count, 5))))


@pytest.mark.parametrize("noise", ["gaussian", "zcdp"])
def test_gaussian_noise_that_was_asked_for_warns_how_much_worse_it_is(noise):
    private = private_of(51, 3060)
    budget = tt.Budget(epsilon=1, delta="1e-9", noise=noise)
    with pytest.warns(PlanWarning, match=r"Gaussian noise is 2\.\d times that of Laplace noise at epsilon = 1"):
        tt.release(private, budget=budget, unit="one_entity", intervals="none")


def test_gaussian_noise_that_is_not_worse_passes_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlanWarning)
        tt.release(private_of(3, 9), budget=tt.Budget(rho="0.1"), unit="one_entity", intervals="none")
        many = {"budget": tt.Budget(epsilon="0.3", delta="1e-5"), "unit": "one_group", "intervals": "none"}
        tt.release(private_of(*[2**level for level in range(1, 13)]), **many)
        tt.release(private_of(51, 3060), budget=tt.Budget(epsilon=1, delta="1e-9"), unit="one_entity", intervals="none")


def test_a_row_with_a_quantity_is_what_one_entity_protects_and_the_user_is_told():
    homes = pa.table({"home": range(60), "county": ["a", "b"] * 30, "persons": [1 + n % 5 for n in range(60)]})
    how = {
        "group": "home",
        "region": "county",
        "hierarchy": tt.Hierarchy.from_levels({"county": ["a", "b"]}, ["county"]),
    }
    private = tt.read(homes, **how, max_size=12, quantity="persons", quantity_bound=12)
    with pytest.warns(PlanWarning, match=r"protects one row .* \(up to 12\), not one of the entities.*mechanism"):
        tt.release(private, budget=tt.Budget(epsilon=1), unit="one_entity", intervals="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlanWarning)
        tt.release(private, budget=tt.Budget(epsilon=1), unit="one_group", intervals="none")
