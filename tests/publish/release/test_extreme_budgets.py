"""Releases with very little and with very much budget: they end, are sound, and come from the mechanism asked for."""

import numpy as np
import pyarrow as pa
import pytest

import tallytree as tt


def households(decided_by=None, *, listed=False, counties=24, each=(20, 40), largest=7, max_size=7, seed=0):
    """Made-up households of counties in two states, by category if someone decides it."""
    dice, names = np.random.default_rng(seed), [f"c{number:03}" for number in range(counties)]
    states = pa.table({"state": ["xy"[number % 2] for number in range(counties)], "county": names})
    tree = tt.Hierarchy.from_levels(states, ["state", "county"])
    county = np.repeat(names, dice.integers(each[0], each[1], counties, endpoint=True))
    home = np.repeat(np.arange(len(county)), np.minimum(1 + dice.geometric(0.5, len(county)), largest))
    sort = dice.choice(list("abc"), len(county))
    rows = pa.table({"home": home, "county": county[home], "sort": sort[home]})
    more = {} if decided_by is None else {"by": {"sort": list("abc")}, "decided_by": decided_by}
    if listed:
        more |= {"groups": pa.table({"home": np.arange(len(county)), "county": county}), "groups_are_public": True}
    return tt.read(rows, group="home", region="county", hierarchy=tree, max_size=max_size, **more)


def check_sound(data, folder, **how):
    release = tt.release(data, **{"unit": tt.one_entity(), "intervals": "guaranteed", **how})
    assert release.fallback is None
    release.save(folder)
    outcome = tt.verify(folder)
    assert outcome.ok, outcome


@pytest.mark.parametrize("epsilon", ["0.03", "0.01", "0.000001"])
def test_releases_by_a_category_that_members_decide_are_sound_where_noise_exceeds_all_counts(epsilon, tmp_path):
    for seed in range(4):
        data = households("members", each=(100, 300), seed=seed)
        check_sound(data, tmp_path / str(seed), budget=tt.Budget(epsilon=epsilon))


BANDS = [{"to": 2, "shares": [1, 8, 1]}, {"shares": [1, 8, 1]}]
SETTLED = {"mechanism": "tallytree", "shares": [1, 8, 1]}
NEARLY_EXACT = {
    "totals by region": ({"decided_by": "group", "listed": True}, {"epsilon": 60}, {"shares": [1, 8, 1]}),
    "totals by region, members": ({"decided_by": "members", "listed": True}, {"epsilon": 300}, {"shares": [100, 1, 1]}),
    "members": ({"decided_by": "members"}, {"epsilon": 300}, {"shares": [100, 1, 1]}),
    "bands": ({}, {"epsilon": 60}, {"mechanism": "tallytree", "options": {"bands": BANDS}}),
    "bluedown": ({}, {"epsilon": 200}, {"mechanism": "bluedown", "shares": [1, 8, 1]}),
    "empty tail": ({"largest": 4, "max_size": 12, "counties": 600, "each": (2, 4)}, {"rho": 200}, {}),
    "empty tail, more budget": ({"largest": 4, "max_size": 12, "counties": 600, "each": (2, 4)}, {"rho": 4000}, {}),
    "entities": ({}, {"epsilon": 300}, {**SETTLED, "options": {"entities_share": "0.2"}}),
    "sums besides": ({"decided_by": "group"}, {"epsilon": 3000}, {**SETTLED, "options": {"all_share": "0.2"}}),
    "lists": ({}, {"epsilon": 600}, {**SETTLED, "options": {"leaves": "lists", "totals_share": "0.1"}}),
    "beliefs": ({"listed": True}, {"epsilon": 600}, {**SETTLED, "options": {"leaves": "beliefs"}}),
}


@pytest.mark.parametrize("case", NEARLY_EXACT)
def test_releases_are_sound_where_one_level_has_far_less_noise_than_another(case, tmp_path):
    data, budget, how = NEARLY_EXACT[case]
    check_sound(households(**data), tmp_path / "release", budget=tt.Budget(**budget), **how)
