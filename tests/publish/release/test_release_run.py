import json
import shutil
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tallytree import (
    Budget,
    BudgetError,
    Hierarchy,
    Ledger,
    Release,
    ReleaseError,
    SpecError,
    load_measurements,
    one_entity,
    one_group,
    release,
    resume,
    verify,
)
from tallytree.domain.categories import Categories
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.mechanisms.count_of_counts import MATCHED, METHODS
from tallytree.privacy import Neighbours
from tallytree.publish.release.release_run import choose_for, estimate_release, prior_of
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.example import TABLE_4, eleven_persons, made_up

UNITS = [one_entity(), one_group()]
RELEASABLE = [name for name, mechanism in MECHANISMS.items() if not mechanism.refused]


ON_TREES = [name for name in RELEASABLE if name != "naive"]
LEAVES_ONLY = {"bottom-up", "naive"}  # take no shares


def fits(name, data):
    if name == "naive":
        return data.hierarchy.depth == 1
    return data.public_totals or not MECHANISMS[name].needs_public_totals


def options_for(name, data):
    return {"totals_share": "0.1"} if name == "coc-matching" and not data.public_totals else {}


def test_the_papers_eleven_persons_reach_table_4_and_a_release(tmp_path):
    data = eleven_persons()
    sums = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
    assert {region: row[1:].tolist() for region, row in zip(data.hierarchy.ids, sums, strict=True)} == TABLE_4
    assert sums[:, 0].tolist() == [0, 0, 0]
    for name, unit in product([name for name in RELEASABLE if fits(name, data)], UNITS):
        made = release(data, budget=Budget(epsilon=1), unit=unit, mechanism=name, intervals="guaranteed")
        assert made.total == 6
        made.save(tmp_path / f"{name}-{unit.kind}")
        assert verify(tmp_path / f"{name}-{unit.kind}").ok


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(ON_TREES), st.sampled_from(UNITS))
def test_every_release_keeps_its_promises(seed, public_totals, mechanism, unit):
    data = made_up(seed, public_totals=public_totals)
    assume(fits(mechanism, data))
    # The paper's tables grow with the noise's variance and its domains can be empty where there is little.
    epsilon = Fraction(1) if mechanism == "pgsr-hierarchical-tables" else Fraction(1 + seed % 50, 25)
    made = release(
        data,
        budget=Budget(epsilon=epsilon),
        unit=unit,
        mechanism=mechanism,
        options=options_for(mechanism, data),
        shares=None if mechanism in LEAVES_ONLY else [1, 2, 3],
        intervals="none",
    )
    tree = made.hierarchy
    assert made.counts.dtype == np.int64
    assert made.counts.min() >= 0
    assert np.array_equal(tree.aggregate(made.counts[tree.level_slice(tree.depth - 1)]), made.counts)
    if public_totals:
        assert made.total == data.leaf_totals.sum()


def test_almost_no_noise_gives_back_the_truth():
    for mechanism, public_totals in product(RELEASABLE, (False, True)):
        data = made_up(7, public_totals=public_totals)
        if not fits(mechanism, data):
            continue
        options = options_for(mechanism, data)
        made = release(
            data,
            budget=Budget(epsilon=3000),
            unit=one_entity(),
            mechanism=mechanism,
            options=options,
            intervals="guaranteed",
        )
        truth = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
        assert np.array_equal(made.counts, truth)


def test_estimation_is_a_function_of_the_measurements():
    made = release(made_up(1, public_totals=True), budget=Budget(epsilon=1), unit=one_entity())
    again = estimate_release(made.measurements, made.made_by)
    assert np.array_equal(again.counts, made.counts)


def test_the_table_is_long_and_whole():
    made = release(made_up(1, public_totals=False), budget=Budget(epsilon=1), unit=one_entity(), intervals="none")
    table = made.table()
    assert table.column_names == ["level", "region", "name", "size", "count"]
    assert len(table) == made.counts.size
    row = {name: table[name][8].as_py() for name in table.column_names}
    assert row == {"level": "state", "region": "A", "name": "A", "size": 3, "count": int(made.counts[1, 2])}


def test_a_release_survives_a_round_trip(tmp_path):
    made = release(
        made_up(3, public_totals=True), budget=Budget(rho="0.5", delta="1e-9"), unit=one_entity(), title="Tallied"
    )
    made.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    assert np.array_equal(again.counts, made.counts)
    assert (again.title, again.mechanism, again.certificate) == (made.title, made.mechanism, made.certificate)
    assert again.measurements.budget == made.measurements.budget


def test_auto_takes_the_view_that_needs_less_noise():
    def chosen(unit, public_totals=False, **bounds):
        return choose("auto", Neighbours(unit, 10, public_totals, **bounds)).name

    assert chosen(one_entity()) == chosen(one_entity(), True) == "tallytree"
    assert chosen(one_entity(), rows_per_entity=3) == "tallytree"
    assert chosen(one_entity(), quantity_bound=5) == chosen(one_group()) == chosen(one_group(), True) == "tallytree"
    members = {"categories": Categories.of({"tenure": ["a", "b"]}, "members")}
    assert chosen(one_entity(), quantity_bound=5, **members) == "pgsr-hierarchical-dp"
    assert choose("auto", Neighbours(one_group(), 65, False)).name == "pgsr-hierarchical-dp"
    assert choose("auto", Neighbours(one_group(), 65, True)).name == "joint-counts"
    with pytest.raises(SpecError, match="unknown mechanism 'topdwn'; did you mean 'TopDown'"):
        choose("topdwn", Neighbours(one_entity(), 10, False))


def test_a_ledger_is_charged_and_learns_the_release_id(tmp_path):
    data = made_up(5, public_totals=False, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon="1.5"), Neighbours.of(data, one_entity()))
    made = release(data, budget=Budget(epsilon=1), unit=one_entity(), ledger=tmp_path / "ledger.db")
    release_id = made.save(tmp_path / "release")
    account = ledger.account("people")
    assert account.left == Fraction(1, 2)
    assert account.spendings[0].release_id == release_id
    with pytest.raises(BudgetError, match=r"has ε = 0\.5 left of ε = 1\.5"):
        release(data, budget=Budget(epsilon=1), unit=one_entity(), ledger=tmp_path / "ledger.db")


def test_an_interrupted_release_goes_on_without_spending_again(tmp_path, monkeypatch):
    data = made_up(5, public_totals=False, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    options = {"budget": Budget(epsilon=1), "unit": one_entity(), "ledger": ledger, "keep": tmp_path / "kept"}

    def interrupt(stage):
        if stage.doing == "estimating":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(data, **options, progress=interrupt)
    assert ledger.account("people").left == 0
    with pytest.raises(ReleaseError, match=r"an interrupted release\. ε = 1 of 'people' in .* is spent"):
        release(data, **options)
    made = resume(tmp_path / "kept")
    release_id = made.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok
    assert ledger.account("people").spendings[0].release_id == release_id
    assert load_measurements(tmp_path / "release" / "measurements.parquet").ledgered
    with pytest.raises(ReleaseError, match="no measurements"):
        resume(tmp_path / "nowhere")


def test_a_refused_release_leaves_no_folder_behind(tmp_path):
    data = made_up(5, public_totals=False, name="people")
    Ledger(tmp_path / "ledger.db").open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    options = {"unit": one_entity(), "ledger": tmp_path / "ledger.db", "keep": tmp_path / "kept"}
    with pytest.raises(BudgetError):
        release(data, budget=Budget(epsilon=2), **options)
    assert not (tmp_path / "kept").exists()


OPTIONS = {
    "methods": ["sorted-sizes", "cumulative-l2", "sorted-sizes-l1"],
    "merge": "plain",
    "totals_share": "1/5",
    "largest_share": "1/8",
}


def with_options(data, **more):
    return release(data, budget=Budget(epsilon=2), unit=one_entity(), mechanism="coc-matching", options=OPTIONS, **more)


def test_options_and_what_was_measured_first_survive_a_round_trip(tmp_path):
    made = with_options(made_up(3, public_totals=False))
    assert made.options == OPTIONS
    assert len(made.sizes) == made.counts.shape[1] == made.measurements.first_stage.max_size
    made.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    assert again.options == made.options
    assert again.sizes == made.sizes
    assert np.array_equal(again.counts, made.counts)
    assert np.array_equal(again.measurements.first_stage.totals, made.measurements.first_stage.totals)
    assert np.array_equal(again.counts.sum(axis=1), again.measurements.first_stage.totals)
    again.save(tmp_path / "again")
    for name in ("counts.parquet", "counts.csv", "regions.csv", "privacy.json", "datapackage.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "release" / name).read_bytes()


def test_the_statement_says_what_was_measured_first_and_what_it_cost(tmp_path):
    made = with_options(made_up(3, public_totals=False))
    made.save(tmp_path / "release")
    statement = json.loads((tmp_path / "release" / "privacy.json").read_text())
    largest, *totals, kept = statement["measured_first"]
    assert "a largest size was measured with 0.25 of the budget" in largest
    assert f"larger than {made.measurements.max_size} count as {made.measurements.max_size}" in largest
    assert [text.split("level ")[1].split()[0] for text in totals] == ["'total'", "'state'", "'county'"]
    assert all("with 0.133334 of the budget" in text for text in totals)
    assert "the counts keep the result" in kept
    assert statement["mechanism"]["options"] == OPTIONS
    assert statement["public"] == ["the hierarchy of regions", "a bound on the largest size, 6"]
    assert statement["max_size"] == made.measurements.max_size
    plain = release(made_up(3, public_totals=False), budget=Budget(epsilon=1), unit=one_entity())
    plain.save(tmp_path / "plain")
    assert json.loads((tmp_path / "plain" / "privacy.json").read_text())["measured_first"] == []


def test_an_interrupted_release_with_options_becomes_the_same_release(tmp_path):
    def interrupt(stage):
        if stage.doing == "estimating":
            raise KeyboardInterrupt

    data = made_up(3, public_totals=False)
    for number, options in enumerate((OPTIONS, {"totals_share": "1/5"}, {**OPTIONS, "methods": ["cumulative"] * 3})):
        kept = tmp_path / f"kept {number}"
        arguments = {"budget": Budget(epsilon=2), "unit": one_entity(), "mechanism": "coc-matching", "options": options}
        with pytest.raises(KeyboardInterrupt):
            release(data, **arguments, keep=kept, progress=interrupt)
        made = resume(kept, mechanism="coc-matching", options=options)
        measurements = load_measurements(kept / "measurements.parquet")
        same = estimate_release(measurements, choose_for(measurements, "coc-matching", made.options))
        assert same.options == made.options
        assert np.array_equal(same.counts, made.counts)
        made.save(tmp_path / f"release {number}")
        assert verify(tmp_path / f"release {number}").faults == ()
    with pytest.raises(SpecError, match="takes one method for each level"):
        resume(kept, mechanism="coc-matching", options={"methods": ["cumulative"], "totals_share": "1/5"})


def test_a_single_region_can_be_released_with_the_naive_method(tmp_path):
    alone = Hierarchy.from_edges([("all", "")])
    counts = np.array([[4, 30, 20, 0, 7]])
    for public in (False, True):
        totals = counts.sum(axis=1) if public else None
        data = GroupSizes(alone, 4 if public else 5, Sealed(counts), leaf_totals=totals)
        options = {} if public else {"totals_share": "0.1"}
        made = release(data, budget=Budget(epsilon=1), unit=one_group(), mechanism="naive", options=options)
        assert made.total == (61 if public else made.measurements.first_stage.totals[0])
        made.save(tmp_path / str(public))
        assert verify(tmp_path / str(public)).faults == ()


def test_every_count_of_counts_release_verifies(tmp_path):
    choices = [("coc-matching", {"methods": [name] * 3}) for name in MATCHED]
    choices += [("coc-matching", {})] + [("bottom-up", {"method": name}) for name in METHODS]
    for number, (public, (name, options)) in enumerate(product((False, True), choices)):
        data = made_up(number, public_totals=public)
        aside = {"largest_share": "0.1"} if number % 2 else {}
        if not public:
            aside["totals_share"] = "0.1"
        made = release(data, budget=Budget(rho=1), unit=one_entity(), mechanism=name, options={**options, **aside})
        made.save(tmp_path / str(number))
        assert verify(tmp_path / str(number)).faults == ()


# -------------------------------------------------------------------- a release as the prior of the next


def test_a_release_directory_is_a_prior_and_a_shape_stays_a_shape(tmp_path, monkeypatch):
    made = release(made_up(3, public_totals=False), budget=Budget(epsilon=1), unit=one_entity(), intervals="none")
    made.save(tmp_path / "households")
    monkeypatch.chdir(tmp_path)
    assert prior_of(tmp_path / "households").source == f"the release {made.title!r}"
    assert prior_of(made, groups=7).groups == 7
    assert prior_of("households").source == "the shape 'households'"


def test_a_copied_folder_of_measurements_resumes_to_the_same_measurements_and_draws_nothing(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db")
    data = made_up(1, public_totals=False, name="people")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    how = {"intervals": "none"}
    first = release(data, budget=Budget(epsilon=1), unit=one_entity(), ledger=ledger, keep=tmp_path / "a", **how)
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    def drawn(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("tallytree.privacy.noise.samplers.discrete_laplace", drawn)
    for copy in "ab":
        again = resume(tmp_path / copy, **how)
        for one, other in zip(first.measurements.measured, again.measurements.measured, strict=True):
            assert np.array_equal(one.values, other.values)
        assert np.array_equal(again.counts, first.counts)
    assert len(ledger.account("people").spendings) == 1
