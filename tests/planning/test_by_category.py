"""Plans for data by category: errors by category and over all of them, from the same made-up data."""

import pytest

from tallytree import Categories, Hierarchy, Neighbours, Prior
from tallytree.planning.report import Alternatives, predict_errors
from tallytree.planning.simulation import Effort, PublicFacts
from tallytree.privacy import Budget

TREE = Hierarchy.from_levels(
    {"state": [str(n // 20) for n in range(200)], "county": [str(n) for n in range(200)]}, ["state", "county"]
)


@pytest.mark.parametrize("most_cells", [10**6, 2_000], ids=["whole", "in part"])
@pytest.mark.parametrize("listed", [False, True], ids=["private", "listed by region"])
@pytest.mark.parametrize("who", ["group", "members"])
def test_errors_are_predicted_by_category_and_over_all(who, listed, most_cells):
    by = Categories.of({"tenure": ["owned", "rented", "other"]}, who)
    report = predict_errors(
        PublicFacts(TREE.by_category(by), Neighbours("one_entity", 8, False, categories=by, groups_listed=listed)),
        Prior.of("households", groups=60_000),
        [Budget(epsilon=1)],
        Alternatives(["tallytree"]),
        effort=Effort(3, most_cells),
    )
    levels = ("all categories", "total", "state", "county", "state, over all", "county, over all")
    assert report.levels == levels
    found = {one.level: one for one in report.of(split="balanced")}
    assert all(one.emd > 0 for one in found.values())
    assert found["county"].half_width is not None
    assert found["county, over all"].half_width is None
    assert found["county, over all"].emd < 3 * found["county"].emd  # of one category, and there are three
    assert any("simulated on" in note for note in report.notes) == (most_cells < 10**6)
