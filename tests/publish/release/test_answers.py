"""Questions and answers: they agree with the table and with dense least squares, and hold the truth as promised."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Answer, Budget, Hierarchy, Release, ReleaseError, SpecError, one_entity, one_group, release
from tallytree.core.progress import Stage
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.typical import digest_of
from tallytree.estimate.intervals.typical import without_noise as view_without_noise
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.queries import Query, named_regions, regions_of_level, resolve, sizes_in, sizes_in_words
from tallytree.publish.release.release_run import choose_for, estimate_release
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.example import made_up
from tests.oracles.least_squares import dense_weights

REGIONS = ["total", "A", "B", "C", "DC", "1", "2", "3", "4", "5", "6"]
VIEWS = [("pgsr-cumulative-dp", "at_least"), ("pgsr-hierarchical-dp", "counts")]


def seeded(seed, *, public_totals, mechanism="joint-cumulative", unit=None, intervals="none", epsilon=1):
    data = made_up(7, public_totals=public_totals)
    counts = data.counts.open_at_the_privacy_border()
    truth = Truth("made up", data.hierarchy, counts, public_totals=public_totals)
    plan = MECHANISMS[mechanism].plan(truth.hierarchy, Budget(epsilon=epsilon), unit or one_entity())
    measurements = seeded_measurements(truth, plan, "answers", seed)
    return truth, estimate_release(measurements, choose_for(measurements, mechanism), Publication(intervals=intervals))


@pytest.fixture(scope="module", params=[False, True], ids=["private totals", "public totals"])
def made(request):
    return release(made_up(11, public_totals=request.param), budget=Budget(epsilon=1), unit=one_entity())


def from_table(made, regions, sizes):
    """A sum straight from the published rows, each leaf counted once."""
    tree = made.hierarchy
    inside = set(regions)
    for region in range(1, len(tree)):
        if tree.ids[tree.parents[region]] in inside:
            inside.add(tree.ids[region])
    rows = made.table().to_pylist()
    wanted = [row for row in rows if row["level"] == "county" and row["region"] in inside and row["size"] in sizes]
    return sum(row["count"] for row in wanted), sum(row["count"] * row["size"] for row in wanted)


picked = st.lists(st.sampled_from(REGIONS), min_size=1, max_size=4)
some_sizes = st.sets(st.integers(1, 6), min_size=1, max_size=6)


@settings(max_examples=60)
@given(picked, some_sizes, picked, some_sizes)
def test_released_values_are_sums_of_the_published_rows(made, regions, sizes, others, other_sizes):
    how = {"typical": False}
    one, _ = from_table(made, regions, sizes)
    other, _ = from_table(made, others, other_sizes)
    every, entities = from_table(made, regions, set(made.sizes))
    assert made.estimate(regions, sizes, **how).released == one
    assert made.difference(regions, others, sizes, to_sizes=other_sizes, **how).released == one - other
    expected = one / other if other else None
    assert made.ratio(regions, others, sizes, to_sizes=other_sizes, **how).released == expected
    assert made.mean_size(regions, **how).released == entities / every
    if len(sizes) < len(made.sizes):
        assert made.share(regions, sizes, **how).released == one / every


def dense_cells(made, view):
    """Unbiased counts of all cells from dense matrices."""
    measurements, tree = made.measurements, made.hierarchy
    variances = [part.variance for part in measurements.measured]
    fitted = dense_weights(tree, variances) @ measurements.stacked(view)
    if view == "counts":
        return fitted
    after = np.hstack([fitted[:, 1:], np.zeros((len(tree), 1))])
    cells = fitted - after
    if measurements.region_totals is None:
        return cells
    return np.hstack([measurements.region_totals[:, None] - fitted[:, :1], cells])


@pytest.mark.parametrize(("mechanism", "view"), VIEWS)
@pytest.mark.parametrize("public_totals", [False, True])
def test_unbiased_estimates_are_those_of_dense_least_squares(mechanism, view, public_totals):
    _, made = seeded(3, public_totals=public_totals, mechanism=mechanism)
    cells, index, first = dense_cells(made, view), made.hierarchy.index, made.sizes.start
    totals = made.measurements.region_totals
    how = {"typical": False}
    for regions, sizes in ((["A", "4"], [2, 3, 5]), (["C"], [6]), (["B", "5", "6"], [1, 4])):
        rows = cells[[index[region] for region in regions]]
        expected = rows[:, np.array(sizes) - first].sum()
        if totals is not None and view == "counts":
            # Public totals offer a second way to most sums: over the sizes that are not asked for.
            known = totals[[index[region] for region in regions]].sum()
            rest = known - rows[:, [size - first for size in made.sizes if size not in sizes]].sum()
            expected = expected if len(sizes) <= len(made.sizes) / 2 else rest
        assert made.estimate(regions, sizes, **how).unbiased == pytest.approx(expected)
        entities = (rows @ np.array(made.sizes)).sum()
        groups = rows.sum() if totals is None else totals[[index[region] for region in regions]].sum()
        assert made.mean_size(regions, **how).unbiased == pytest.approx(entities / groups)
        assert made.share(regions, sizes, **how).unbiased == pytest.approx(expected / groups)


def test_public_totals_turn_a_sum_over_most_sizes_into_one_over_the_others():
    _, made = seeded(4, public_totals=True, mechanism="joint-counts", unit=one_group())
    total = int(made.measurements.region_totals[1])
    most, least = made.estimate("A", ">=1", typical=False), made.estimate("A", "0", typical=False)
    assert most.unbiased == pytest.approx(total - least.unbiased)
    assert most.guaranteed == (total - least.guaranteed[1], total - least.guaranteed[0])


def test_the_answer_about_one_cell_is_the_tables(made):
    rows = {(row["region"], row["size"]): row for row in made.table().to_pylist()}
    for region, size in (("C", 3), ("4", 6), ("total", 1)):
        answer, row = made.estimate(region, size), rows[region, size]
        assert answer.guaranteed == (row["lower"], row["upper"])
        assert answer.typical == (row["typical_lower"], row["typical_upper"])
    wider = made.estimate("C", 3, confidence=0.99)
    again = guaranteed(made.measurements, made.counts, level=0.99)
    place = made.hierarchy.index["C"], 3 - made.sizes.start
    assert wider.guaranteed == (again.lower[place], again.upper[place])
    assert wider.confidence == 0.99
    assert wider.typical is not None


ASKED = [
    ("sum", ["A", "3"], ">=4"),
    ("sum", "C", "2,5"),
    ("share", "C", "3-5"),
    ("mean", "B", None),
    ("ratio", "A", ">=2", "C", ">=2"),
    ("difference", "4", ">=3", "B", ">=3"),
    ("median", "4"),
    ("median", ["A", "3"]),
    ("quantile", "A", None, None, None, 0.9),
    ("quantile", "5", None, None, None, 0.2),
    ("gini", "C"),
    ("gini", ["1", "6"]),
]


def _query(kind, regions, sizes=None, to=None, to_sizes=None, q=None):
    return Query(kind, regions, sizes, to=to, to_sizes=to_sizes, q=q)


def asked(made, **how):
    return answer_queries(made, [_query(*each) for each in ASKED], **how)


@pytest.mark.parametrize(
    ("public_totals", "mechanism", "unit"),
    [
        (False, "joint-cumulative", one_entity()),
        (True, "joint-cumulative", one_entity()),
        (True, "joint-counts", one_group()),
    ],
)
def test_guaranteed_intervals_of_answers_hold_the_truth(public_totals, mechanism, unit):
    """By seed, so the outcome is fixed."""
    runs, held, true = 100, [], None
    for seed in range(runs):
        truth, made = seeded(seed, public_totals=public_totals, mechanism=mechanism, unit=unit)
        if true is None:
            true = [answer.released for answer in asked(replace(made, counts=truth.all_levels()), typical=False)]
        ends = [answer.guaranteed for answer in asked(made, typical=False, confidence=0.9)]
        held.append([lower <= value <= upper for (lower, upper), value in zip(ends, true, strict=True)])
    by_question = np.mean(held, axis=0)
    assert by_question.min() >= 0.9 - 3 * math.sqrt(0.09 / runs), by_question
    assert by_question.mean() >= 0.9, by_question


def test_typical_intervals_of_answers_mostly_hold_the_truth():
    """Fresh noise: a half-width moves by some 15 %, and the bound lies far below what was found."""
    held = []
    for seed in range(12):
        truth, made = seeded(seed, public_totals=False)
        true = asked(replace(made, counts=truth.all_levels()), typical=False)
        for answer, exact in zip(asked(made), true, strict=True):
            held.append(answer.typical[0] <= exact.released <= answer.typical[1])
    assert np.mean(held) > 0.7, np.mean(held)


@settings(max_examples=40)
@given(picked, some_sizes, picked)
def test_every_interval_is_in_order_and_holds_the_released_value(made, regions, sizes, others):
    asked = [made.estimate(regions, sizes, typical=False), made.mean_size(regions, typical=False)]
    asked.append(made.difference(regions, others, sizes, typical=False))
    asked.append(made.ratio(regions, others, sizes, typical=False))
    for answer in asked:
        lower, upper = answer.guaranteed
        assert lower <= upper
        assert answer.released is None or lower <= answer.released <= upper
        assert answer.sentence.startswith(answer.question[0].upper())
    assert asked[0].guaranteed == tuple(map(int, asked[0].guaranteed))


# -------------------------------------------------------------------- what is asked together, and every level


def test_every_region_of_a_level_is_answered_by_itself(made):
    steps = []
    found = made.ask_each(Query(sizes=">=2"), level="county", progress=steps.append)
    assert [answer.regions for answer in found] == [(region,) for region in regions_of_level(made.hierarchy, "county")]
    assert steps.count(Stage("typical intervals", 25, 25)) == 1  # one run for all of them
    for answer in found:
        assert answer.released == made.estimate(answer.regions, ">=2", typical=False).released
        assert answer.typical[0] <= answer.released <= answer.typical[1]
    assert [found.regions[0] for found in made.ask_each(Query("sum", "C", 1), level="county")] == ["4", "5", "6"]
    for kind, one in (("share", made.share("B", 2, typical=False)), ("ratio", made.ratio("B", "C", 2, typical=False))):
        assert made.ask_each(Query(kind, sizes=2, to="C"), level="state", typical=False)[1] == one
    with pytest.raises(SpecError, match="unknown kind of query 'mode'"):
        made.ask_each(Query("mode"), level="county")
    with pytest.raises(SpecError, match="no level 'countys'; did you mean 'county'"):
        made.ask_each(Query(), level="countys")
    with pytest.raises(SpecError, match="none of the regions of level 'state' lies within"):
        made.ask_each(Query(regions="4"), level="state")


def test_bands_hold_together_and_so_are_wider(made):
    table = made.bands("C").to_pylist()
    alone = {row["size"]: row for row in made.table().to_pylist() if row["region"] == "C"}
    assert [row["size"] for row in table] == list(made.sizes)
    again = guaranteed(made.measurements, made.counts, level=0.95, simultaneous=True)
    for row in table:
        place = made.hierarchy.index["C"], row["size"] - made.sizes.start
        assert (row["lower"], row["upper"]) == (again.lower[place], again.upper[place])
        assert row["lower"] <= alone[row["size"]]["lower"]
        assert row["upper"] > alone[row["size"]]["upper"]
    some = made.bands(["C", "4"], "2-3", confidence=0.8).to_pylist()
    assert [(row["region"], row["size"]) for row in some] == [("C", 2), ("C", 3), ("4", 2), ("4", 3)]


# -------------------------------------------------------------------- where little or nothing is known


def without_noise(data):
    """The release that would follow if all noise happened to be zero: what the intervals say of it is then fixed."""
    made = release(data, budget=Budget(epsilon=2), unit=one_entity(), intervals="none")
    truth = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
    measured = tuple(
        replace(part, values=view_without_noise(part, truth, made.measurements)) for part in made.measurements.measured
    )
    return estimate_release(replace(made.measurements, measured=measured), made.made_by, Publication(intervals="none"))


def nearly_empty(public):
    """Two counties: nothing but small groups in one, none at all in the other."""
    tree = Hierarchy.from_levels({"county": ["full", "void"]}, ["county"])
    counts = np.array([[0, 500, 300, 0, 0], [0, 0, 0, 0, 0]])
    totals = counts.sum(axis=1) if public else None
    return GroupSizes(tree, 4 + (not public), Sealed(counts), leaf_totals=totals)


@pytest.fixture(scope="module")
def empty():
    return {public: without_noise(nearly_empty(public)) for public in (False, True)}


@pytest.mark.parametrize("public", [False, True])
def test_a_ratio_whose_denominator_may_be_zero_is_unbounded_and_says_so(empty, public):
    answer = empty[public].ratio("full", "void", 2)
    assert answer.released is None
    assert answer.shown(answer.released) == "undefined"
    assert answer.guaranteed == answer.typical == (0, math.inf)
    assert answer.unbiased is None
    assert any("released denominator is zero" in note for note in answer.notes)
    assert any("The denominator may be zero" in note for note in answer.notes)
    assert "The guaranteed interval is unbounded." in answer.sentence
    stored = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert stored["guaranteed"] == stored["typical"] == [0, None]


def test_shares_and_means_of_nothing_stay_within_what_is_possible(empty):
    share = empty[True].share("void", ">=2", typical=False)  # it is public that there are no groups
    assert share.released is None
    assert share.guaranteed == (0, 1)
    assert any("beyond its possible values, 0 to 1" in note for note in share.notes)
    mean = empty[True].mean_size("void")
    assert mean.guaranteed == (0, 4)
    assert mean.typical == (0, 4)
    assert any("truncated at 4" in note for note in mean.notes)
    assert any("typical interval is unbounded" in note for note in mean.notes)


STATISTICS = [Query("median", "void"), Query("quantile", "void", q=0.9), Query("gini", "void")]


@pytest.mark.parametrize("public", [False, True])
def test_statistics_of_nothing_are_undefined_and_their_intervals_are_everything(empty, public):
    sizes = empty[public].sizes
    for query in STATISTICS:
        answer = empty[public].ask(query)
        possible = (0, 1) if query.kind == "gini" else (sizes[0], sizes[-1])
        assert answer.released is None
        assert answer.guaranteed == answer.typical == possible
        assert answer.shown(answer.released) == "undefined"
        missing = "entities" if query.kind == "gini" else "groups"
        assert f"The released number of {missing} is zero, so there is no released value." in answer.notes
        assert any("may be zero, so the measurements do not bound the answer beyond" in note for note in answer.notes)
        stored = json.loads(json.dumps(answer.to_json(), allow_nan=False))
        assert stored["released"] is None
        assert stored["notes"] == list(answer.notes)


def test_a_statistic_of_nearly_nothing_but_one_size_is_that_size(empty):
    made = empty[True]
    assert made.ask(Query("median", "full")).guaranteed == made.ask(Query("median", "full")).typical == (1, 1)
    sentence = made.ask(Query("median", "full"), typical=False).sentence
    assert (
        "Median size of the groups in full: 1. For any data, the truth is 1 with a probability of at least" in sentence
    )
    assert "known exactly" not in sentence
    answer = made.ask(Query("gini", "full"), typical=False)
    assert answer.guaranteed[0] < answer.released < answer.guaranteed[1]
    assert "so the Gini coefficient is truncated at 4: a lower bound where there are larger ones" in answer.sentence
    assert "the truncated coefficient lies from" not in sentence


def test_the_last_size_of_a_quantile_stands_for_all_larger_ones(made):
    answer = made.ask(Query("quantile", "A", q=1), typical=False)
    assert answer.shown(answer.released) == "6 or more"
    assert answer.between(answer.guaranteed).endswith("6 or more")
    assert "A size of 6 stands for 6 or more." in answer.notes
    least = made.ask(Query("quantile", "A", q=0), typical=False)
    assert least.question == "0 % quantile of the sizes of the groups in A"
    assert least.notes == ()
    assert "6 or more" in made.ask(Query("quantile", "A", q=1), typical=False)._repr_html_()
    assert repr(answer).startswith("Answer('100 % quantile of the sizes of the groups in A', 6 or more, guaranteed ")


@pytest.mark.parametrize("kind", ["mean", "median", "quantile", "gini"])
def test_a_statistic_is_over_all_sizes(made, kind):
    with pytest.raises(SpecError, match=f"a {kind} is over all sizes; leave the sizes out"):
        made.ask(_query(kind, "A", ">=2", q=0.5 if kind == "quantile" else None))


def test_statistics_asked_together_or_alone_by_level_or_area_have_the_same_answers(made):
    for query in (Query("median"), Query("quantile", q="0.9"), Query("gini")):
        by_level = made.ask_each(query, level="county", typical=False)
        areas = {region: [region] for region in regions_of_level(made.hierarchy, "county")}
        for answer, of_area in zip(by_level, made.ask_each(query, areas=areas, typical=False), strict=True):
            assert answer == made.ask(replace(query, regions=answer.regions), typical=False)
            assert (answer.released, answer.guaranteed) == (of_area.released, of_area.guaranteed)
        assert made.ask_each(query, areas={"all": ["total"]})[0].typical == made.ask(query).typical


def test_public_totals_are_known_exactly():
    for mechanism, kept in (("joint-cumulative", True), ("pgsr-cumulative-dp", False)):
        truth, made = seeded(5, public_totals=True, mechanism=mechanism)
        total = int(truth.all_levels()[1].sum())
        answer = made.estimate("A")
        assert answer.unbiased == total
        assert any(f"The public number of groups there is {total:,}" in note for note in answer.notes)
        if kept:
            assert answer.guaranteed == answer.typical == (total, total)
            assert "known exactly" in answer.sentence
        else:
            assert answer.guaranteed == (min(total, answer.released), max(total, answer.released))
            assert any("keeps for the root only" in note for note in answer.notes)


def test_without_a_linear_view_there_is_a_typical_interval_and_a_reason():
    data = made_up(11, public_totals=True)
    made = release(data, budget=Budget(epsilon=8), unit=one_entity(), mechanism="pgsr-chain")
    answer = made.estimate("A", ">=3")
    assert answer.guaranteed is None
    assert answer.unbiased is None
    assert answer.typical[0] < answer.released < answer.typical[1]
    assert any("Guaranteed intervals need" in note for note in answer.notes)
    assert answer.between(answer.guaranteed) == "none"
    with pytest.raises(ReleaseError, match="no bands: Guaranteed intervals need"):
        made.bands("A")


def test_a_ratio_that_reaches_zero_has_a_typical_interval_on_the_plain_scale(empty):
    answer = empty[False].ratio("void", "full", 2)
    assert answer.typical[0] == 0
    assert 0 < answer.typical[1] < 0.2
    assert answer.guaranteed[0] == 0
    far = empty[False].ratio("full", "full", 2, to_sizes=3)  # on the scale of logarithms
    assert far.typical[0] * far.typical[1] == pytest.approx(far.released**2)


# -------------------------------------------------------------------- names and sizes


def test_regions_go_by_id_name_and_branch():
    tree = Hierarchy.from_regions(
        {
            "state": ["Oregon", "Oregon", "Maine", "DC"],
            "code": ["41041", "41043", "23015", "11001"],
            "name": ["Lincoln", "Linn", "Lincoln", "Columbia"],
        },
        leaf="code",
        levels=["state"],
        name="name",
    )
    assert named_regions("41043", tree) == named_regions("Linn", tree) == named_regions("linn", tree)
    assert named_regions(None, tree) == [0]
    assert [tree.ids[region] for region in named_regions(["Maine", "Columbia"], tree)] == ["Maine", "11001"]
    with pytest.raises(SpecError, match="2 regions are called 'Lincoln'; give one of the ids: 41041, 23015"):
        named_regions("Lincoln", tree)
    with pytest.raises(SpecError, match="no region 'Orogen'; did you mean Oregon"):
        named_regions("Orogen", tree)
    with pytest.raises(SpecError, match=r"no region '#'; regions\.csv lists ids and names"):
        named_regions("#", tree)
    with pytest.raises(SpecError, match="the sum is empty: no region was given"):
        named_regions([], tree)
    with pytest.raises(SpecError, match="7 is not a region; expected an id or a name"):
        named_regions([7], tree)
    short = Hierarchy.from_levels({"state": ["A", "DC"], "county": ["1", ""]}, ["state", "county"])
    assert named_regions("DC", short) == [short.index["DC"]]  # carried down to the counties under the same name


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (None, (1, 2, 3, 4, 5, 6)),
        (">=4", (4, 5, 6)),
        ("≥4", (4, 5, 6)),
        ("> 4", (5, 6)),
        ("<=2", (1, 2)),
        ("< 2", (1,)),
        ("≤2", (1, 2)),
        ("3-5", (3, 4, 5)),
        ("3 to 5", (3, 4, 5)),
        ("2", (2,)),
        ("=2", (2,)),
        ("5+", (5, 6)),
        ("5 or more", (5, 6)),
        ("1,2,5+", (1, 2, 5, 6)),
        ("6,1,1", (1, 6)),
        (">=0", (1, 2, 3, 4, 5, 6)),
        (3, (3,)),
        (np.int64(3), (3,)),
        (range(2, 4), (2, 3)),
        ([5, 1, 5], (1, 5)),
    ],
)
def test_sizes_are_read_as_people_write_them(text, sizes):
    assert sizes_in(text, range(1, 7)) == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "no size 7; this release counts the sizes 1 to 6, where 6 stands for 6 or more"),
        (">=7", "no size 7"),
        (">6", "no size 7"),
        ("3-9", "no size 9"),
        ("<=8", "no size 8"),
        ("0", "no size 0: the list of groups is private"),
        ("0-2", "no size 0"),
        ("<1", "the sum is empty: '<1' holds none of the sizes 1 to 6"),
        ("5-3", "the sum is empty"),
        ("", "'' is not a list of sizes"),
        ("many", 'write ">=6"'),
        ("1,,2", "is not a list of sizes"),
        ("-1", "is not a list of sizes"),
        ("1.5", "is not a list of sizes"),
        ([], "the sum is empty: the list of sizes holds none"),
        ([2.0], "2.0 is not a size; expected an integer"),
        ([True], "True is not a size"),
        (2.5, "2.5 is not a size"),
        ([9], "no size 9"),
        (-1, "no size -1"),
    ],
)
def test_sizes_that_are_unknown_empty_or_unreadable_are_refused(text, message):
    with pytest.raises(SpecError) as error:
        sizes_in(text, range(1, 7))
    assert message in str(error.value)


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 1))
def test_sizes_in_words_name_the_same_sizes(sizes, first):
    known = range(first, 10)
    wanted = tuple(sorted(sizes & set(known))) or (5,)
    words = sizes_in_words(wanted, known)
    if words:
        text = words.split(" ", 1)[1].replace(" and ", ",")
        assert sizes_in(text, known) == wanted
    else:
        assert wanted == tuple(known)


def test_questions_without_sense_are_refused(made):
    with pytest.raises(SpecError, match="share of all sizes is always 1"):
        made.share("A", None)
    with pytest.raises(SpecError, match="no region 'Z'"):
        made.ratio("A", "Z", 1)
    with pytest.raises(SpecError, match="level of an interval"):
        made.estimate("A", 1, confidence=3)
    with pytest.raises(SpecError, match="no size 12"):
        made.bands("A", 12)
    assert isinstance(made.estimate("A", 1, typical=False), Answer)
    assert made.estimate("A", 1, typical=False).typical is None


# -------------------------------------------------------------------- the same every time, and rounded outward


def test_typical_intervals_are_the_same_when_asked_twice_and_after_saving(made, tmp_path):
    question = {"regions": ["A", "3"], "sizes": "2-4"}
    first = made.estimate(**question)
    assert made.estimate(**question) == first
    made.save(tmp_path / "saved")
    assert Release.load(tmp_path / "saved").estimate(**question) == first
    again = estimate_release(made.measurements, made.made_by)
    assert np.array_equal(again.error_bars.typical.lower, made.error_bars.typical.lower)
    assert np.array_equal(again.error_bars.typical.upper, made.error_bars.typical.upper)


def test_other_measurements_have_other_replicates():
    one, other = (seeded(seed, public_totals=True)[1] for seed in (1, 2))
    assert digest_of(one.measurements) != digest_of(other.measurements)


def number_in(text):
    return float(text.removesuffix(" %").replace("−", "-").replace(",", "")) / (100 if "%" in text else 1)


@given(
    st.sampled_from(["share", "mean", "ratio", "sum", "difference", "gini"]),
    st.floats(0, 1e6),
    st.floats(1e-7, 10),
    st.floats(0, 1),
)
def test_an_interval_that_is_shown_holds_the_interval_and_the_value_that_is_shown(kind, low, width, place):
    high = low * (1 + width) + width
    low, high = (round(low), round(high)) if kind in ("sum", "difference") else (low, high)
    value = min(max(low + place * (high - low), low), high)
    answer = Answer("it", kind, value, None, (low, high), None, 0.95)
    ends = [number_in(text) for text in answer.between((low, high)).split(" … ")]
    slack = 1e-11 * (1 + high)
    assert ends[0] <= low + slack
    assert high - slack <= ends[1]
    assert ends[0] < ends[1] or low == high
    assert ends[1] - ends[0] <= 1.5 * (high - low) + 1e-3 * high + 2
    if kind not in ("sum", "difference"):
        assert ends[0] - slack <= number_in(answer.shown(value)) <= ends[1] + slack


def test_narrow_intervals_have_as_many_digits_as_it_takes():
    answer = Answer("it", "mean", 2.64615, None, (2.64612, 2.64618), (2.5, 2.75), 0.95)
    assert answer.between(answer.guaranteed) == "2.64612 … 2.64618"
    assert answer.shown(answer.released) == "2.64615"
    wide = Answer("it", "share", 0.1, 0.12, (0.0999996, 0.1200004), None, 0.95)
    assert wide.between(wide.guaranteed) == "9.999 % … 12.01 %"
    assert wide.shown(0.1) == "10 %"
    assert "from 9.999 % to 12.01 %" in wide.sentence
    exact = Answer("it", "ratio", 0.3, None, (0.1 + 0.2, 0.1 + 0.2), None, 0.95)
    assert exact.between(exact.guaranteed) == "0.3 … 0.3"


def lists_release(seed, *, public_totals=True, epsilon=1):
    data = made_up(7, public_totals=public_totals)
    truth = Truth("made up", data.hierarchy, data.counts.open_at_the_privacy_border(), public_totals=public_totals)
    options = {"leaves": "lists"} if public_totals else {"leaves": "lists", "totals_share": "1/4"}
    chosen = MECHANISMS["tallytree"].configured(options)
    plan = chosen.plan(truth.hierarchy, Budget(epsilon=epsilon), one_entity())
    measurements = seeded_measurements(truth, plan, "lists", seed, derive_facts=chosen.derive_facts)
    return truth, estimate_release(measurements, chosen, Publication(intervals="none"))


@pytest.mark.parametrize("public_totals", [True, False])
def test_sums_of_lists_hold_the_truth_as_promised(public_totals):
    asked = [("sum", "total", ">=2"), ("sum", "A", "1,3,5+"), ("sum", ["1", "4"], "<=4"), ("sum", "C", ">=6")]
    asked += [("sum", "3"), ("share", "A", ">=3"), ("share", "2", "1,4"), ("ratio", "A", "1", "C", ">=2")]
    asked += [("difference", "A", "1", "3", "2"), ("mean", "C"), ("median", "1"), ("gini", "2"), ("median", ["1", "4"])]
    held, runs = np.zeros(len(asked)), 60
    for seed in range(runs):
        truth, made = lists_release(seed, public_totals=public_totals)
        queries = [_query(*each) for each in asked]
        for number, found in enumerate(answer_queries(made, queries, confidence=0.8, typical=False)):
            assert found.unbiased is None
            low, high = found.guaranteed
            assert low <= found.released <= high
            held[number] += (
                low
                <= resolve(queries[number], made.hierarchy, made.sizes).value(truth.all_levels(), made.sizes.start)
                <= high
            )
    assert (held / runs >= 0.8 - 5 * math.sqrt(0.16 / runs)).all()
    every = made.estimate("A", typical=False)
    assert ("known exactly" in every.sentence) == public_totals


def test_a_region_whose_measurements_disagree_is_named_in_the_answer():
    _, made = seeded(3, public_totals=True)
    assert "differs from its released counts" not in made.estimate("A", ">=2", typical=False).sentence
    part = made.measurements.measured[1]
    row = made.hierarchy.index["A"] - made.hierarchy.level_slice(1).start
    values = part.values.copy()
    values[row] += 1000
    others = [replace(each, values=values) if each is part else each for each in made.measurements.measured]
    changed = replace(made, measurements=replace(made.measurements, measured=tuple(others)))
    found = changed.ask(Query("sum", "A", ">=2"), typical=False)
    assert "The measurement of A differs from its released counts" in found.sentence
    assert "a probability of at most 1 in 1,000" in found.sentence
    whole = changed.ask(Query("sum", "B", ">=2"), typical=False)
    assert "differs from its released counts" not in whole.sentence
    both = changed.ask(Query("ratio", "B", ">=2", to="A"), typical=False)
    assert "The measurement of A differs from its released counts" in both.sentence
