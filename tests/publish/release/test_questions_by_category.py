"""Questions to a release by category, and areas that are published by category: they agree with the table."""

import json
from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest

from tallytree import Neighbours, Query, Release, SpecError, release, verify
from tallytree.lab.truth import seeded
from tallytree.mechanisms import prepare
from tallytree.privacy import Budget
from tallytree.privacy.run import measure_with
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import estimate_release
from tests.publish.release.test_categories import BY, KINDS, TREE, TWO, group_sizes
from tests.publish.test_verify import sign_again

AREAS = {"districts": {"north": ["A", "C"], "one": ["B"], "x and more": ["A", "B", "D"]}}
ASKED = list(product(["total", "x", "A"], ["all", "owned", "rented"]))


@pytest.fixture(scope="module", params=["group", "members", "group, public totals by region"])
def made(request):
    return release(group_sizes(**KINDS[request.param]), budget={"epsilon": 1}, unit="one_entity", areas=AREAS)


def rows_by_key(table, *names):
    return {tuple(row[name] for name in names): row for row in table.to_pylist()}


@pytest.mark.parametrize(("region", "tenure"), ASKED)
def test_a_question_about_a_cell_has_the_numbers_of_the_table(made, region, tenure):
    rows = rows_by_key(made.table(), "region", "tenure", "size")
    for size in (1, 3):
        found, row = made.estimate(region, size, by={"tenure": tenure}), rows[region, tenure, size]
        assert found.released == row["count"]
        assert found.guaranteed == (row["lower"], row["upper"])
        assert found.typical == (row["typical_lower"], row["typical_upper"])
        assert (found.regions, found.by) == ((region,), (("tenure", tenure),))
    assert ("with tenure rented" in found.question) == (tenure == "rented")


@pytest.mark.parametrize("region", [None, "x", ["A", "D"]])
def test_answers_of_categories_add_up_to_those_over_all(made, region):
    whole = made.estimate(region, ">=2", typical=False)
    parts = [made.estimate(region, ">=2", by={"tenure": tenure}, typical=False) for tenure in BY["tenure"]]
    assert whole.released == sum(part.released for part in parts)
    assert whole.guaranteed[0] <= whole.released <= whole.guaranteed[1]
    width = [high - low for low, high in (one.guaranteed for one in (whole, *parts))]
    assert width[0] <= sum(width[1:])


def test_shares_of_categories_add_up_to_one(made):
    shares = [made.share("x", of={"tenure": tenure}, typical=False) for tenure in BY["tenure"]]
    assert sum(share.released for share in shares) == pytest.approx(1)
    assert shares[1].question == "share of tenure rented among the groups in x"
    some = made.share("x", "1-2", of={"tenure": "rented"}, typical=False)
    one, all_ = (made.estimate("x", "1-2", by=by, typical=False).released for by in ({"tenure": "rented"}, None))
    assert some.released == one / all_
    compared = made.ratio("x", "x", by={"tenure": "rented"}, to_by={"tenure": "owned"}, typical=False)
    assert compared.released == pytest.approx(shares[1].released / shares[0].released)


def test_bands_are_those_of_one_category_or_of_all(made):
    for tenure in ("all", "owned"):
        rows = made.bands("A", by={"tenure": tenure}).to_pylist()
        own = rows_by_key(made.table(), "region", "tenure", "size")
        for row in rows:
            assert row["tenure"] == tenure
            assert row["count"] == own["A", tenure, row["size"]]["count"]
            assert row["lower"] <= own["A", tenure, row["size"]]["lower"]
            assert row["upper"] >= own["A", tenure, row["size"]]["upper"]


def test_a_public_number_of_groups_over_all_categories_is_known_exactly():
    made = release(group_sizes(), budget={"epsilon": 1}, unit="one_entity", intervals="none")
    found = made.estimate("A", typical=False)
    assert found.guaranteed == (found.released, found.released)
    part = made.estimate("A", by={"tenure": "owned"}, typical=False)
    assert part.guaranteed[0] < part.guaranteed[1]


def test_sums_that_were_measured_answer_questions_about_all(made):
    """Sums of counts by category would need wider intervals than what was measured of the sums by at_least."""
    if not made.hierarchy.by.members_decide:
        return
    found = made.estimate(None, ">=2", typical=False).guaranteed
    parts = [made.estimate(None, ">=2", by={"tenure": tenure}, typical=False).guaranteed for tenure in BY["tenure"]]
    assert found[1] - found[0] < max(high - low for low, high in parts)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"by": {"tenur": "owned"}}, "there is no category 'tenur'; did you mean 'tenure'"),
        ({"by": {"tenure": "rentd"}}, "tenure has no value 'rentd'; did you mean 'rented'"),
        ({"by": "rented"}, "by is .* expected a mapping by name"),
        ({"of": {"tenure": "all"}}, "the share of 'all' is always 1"),
        ({"of": {"tenure": "owned"}, "by": {"tenure": "owned"}}, "both by and of have a value of 'tenure'"),
    ],
)
def test_unknown_categories_are_named_with_what_was_meant(made, how, words):
    with pytest.raises(SpecError, match=words):
        made.share("A", "1", **how)


def test_releases_without_categories_take_no_by():
    rows = release(group_sizes(by=None, decided_by=None), budget={"epsilon": 1}, unit="one_entity", intervals="none")
    with pytest.raises(SpecError, match="has no categories"):
        rows.estimate("A", by={"tenure": "owned"})


# -------------------------------------------------------------------- areas


def test_published_areas_have_rows_for_each_category_and_for_all(made, tmp_path):
    made.save(tmp_path / "out")
    assert verify(tmp_path / "out").faults == ()
    assert Release.load(tmp_path / "out").area_table().equals(made.area_table())
    rows = rows_by_key(pq.read_table(tmp_path / "out" / "areas.parquet"), "area", "tenure", "size")
    assert len(rows) == 3 * 3 * len(made.sizes)
    own = rows_by_key(made.table(), "region", "tenure", "size")
    for (area, tenure, size), row in rows.items():
        leaves = AREAS["districts"][area]
        assert row["count"] == sum(own[leaf, tenure, size]["count"] for leaf in leaves)
        assert row["lower"] <= row["count"] <= row["upper"]
        found = made.ask_each(Query(sizes=size, by={"tenure": tenure}), areas={area: leaves}, typical=False)[0]
        if area == "one":
            ends = "lower", "upper", "typical_lower", "typical_upper"
            assert [row[name] for name in ends] == [own["B", tenure, size][name] for name in ends]
            assert found.guaranteed == (row["lower"], row["upper"])


def test_forged_areas_by_category_are_found(made, tmp_path):
    made.save(tmp_path / "out")
    path = tmp_path / "out" / "areas.parquet"
    table = pq.read_table(path)
    for column in ("count", "upper", "typical_upper"):
        values = table[column].to_pylist()
        values[0] += 1
        pq.write_table(table.set_column(table.column_names.index(column), table.schema.field(column), [values]), path)
        sign_again(tmp_path / "out")
        assert any("areas.parquet" in fault for fault in verify(tmp_path / "out").faults)


@pytest.mark.parametrize("who", ["group", "members"])
def test_guaranteed_intervals_of_areas_by_category_hold_as_often_as_they_say(who):
    private = group_sizes(TWO, decided_by={"tenure": who, "origin": "group"}, groups=None)
    tree = private.hierarchy
    truth = tree.aggregate(private.counts.open_at_the_privacy_border())
    mechanism, plan = prepare(
        "auto", neighbours=Neighbours.of(private, "one_entity"), hierarchy=tree, totals=None, budget=Budget(epsilon=1)
    )
    leaves = [TREE.index[leaf] for leaf in ("A", "B", "D")]
    cells = [place for place, cell in enumerate(tree.by.cells) if cell[0] == "owned"]
    parts = tree.cell_rows[np.ix_(leaves, cells)].ravel()
    right, outside, runs = int(truth[parts, 1:].sum()), 0, 60
    for seed in range(runs):
        measured = measure_with(seeded(seed), private, plan)
        found = estimate_release(measured, mechanism, Publication(intervals="none")).estimate(
            ["A", "B", "D"], ">=2", by={"tenure": "owned"}, typical=False, confidence=0.8
        )
        outside += not found.guaranteed[0] <= right <= found.guaranteed[1]
    assert outside <= 0.3 * runs


def test_the_statement_says_what_columns_of_areas_mean(made, tmp_path):
    made.save(tmp_path / "out")
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    areas = next(one for one in package["resources"] if one["name"] == "areas")
    assert [field["name"] for field in areas["schema"]["fields"]][:5] == ["kind", "area", "tenure", "size", "count"]
    assert areas["schema"]["primaryKey"] == ["kind", "area", "tenure", "size"]
