from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tallytree import (
    Budget,
    BudgetError,
    Ledger,
    Measurements,
    Release,
    ReleaseError,
    SpecError,
    one_entity,
    one_group,
    release,
    resume,
    verify,
)
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.privacy import Neighbours
from tallytree.publish import estimated
from tests.oracles.example import TABLE_4, eleven_persons, made_up

UNITS = [one_entity(), one_group()]
RELEASABLE = [name for name, mechanism in MECHANISMS.items() if not mechanism.refused]


def fits(name, data):
    return data.public_totals or not MECHANISMS[name].needs_public_totals


def test_the_papers_eleven_persons_reach_table_4_and_a_release(tmp_path):
    data = eleven_persons()
    sums = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
    assert {region: row[1:].tolist() for region, row in zip(data.hierarchy.ids, sums, strict=True)} == TABLE_4
    assert sums[:, 0].tolist() == [0, 0, 0]
    for name, unit in product(RELEASABLE, UNITS):
        made = release(data, budget=Budget(epsilon=1), unit=unit, mechanism=name)
        assert made.total == 6
        made.save(tmp_path / f"{name}-{unit.kind}")
        assert verify(tmp_path / f"{name}-{unit.kind}").ok


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(RELEASABLE), st.sampled_from(UNITS))
def test_every_release_keeps_its_promises(seed, public_totals, mechanism, unit):
    data = made_up(seed, public_totals=public_totals)
    assume(fits(mechanism, data))
    # The paper's tables grow with the noise's variance and its domains can be empty where there is little.
    epsilon = Fraction(1) if mechanism == "pgsr-hierarchical-tables" else Fraction(1 + seed % 50, 25)
    made = release(data, budget=Budget(epsilon=epsilon), unit=unit, mechanism=mechanism, shares=[1, 2, 3])
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
        made = release(data, budget=Budget(epsilon=3000), unit=one_entity(), mechanism=mechanism)
        truth = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
        assert np.array_equal(made.counts, truth)


def test_estimation_is_a_function_of_the_measurements():
    made = release(made_up(1, public_totals=True), budget=Budget(epsilon=1), unit=one_entity())
    again = estimated(made.measurements, mechanism=made.mechanism)
    assert np.array_equal(again.counts, made.counts)


def test_the_table_is_long_and_whole():
    made = release(made_up(1, public_totals=False), budget=Budget(epsilon=1), unit=one_entity())
    table = made.table()
    assert table.column_names == ["level", "region", "size", "count"]
    assert len(table) == made.counts.size
    row = {name: table[name][8].as_py() for name in table.column_names}
    assert row == {"level": "state", "region": "A", "size": 3, "count": int(made.counts[1, 2])}


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

    assert chosen(one_entity()) == chosen(one_entity(), True) == "joint-cumulative"
    assert chosen(one_entity(), rows_per_entity=3) == "joint-cumulative"
    assert chosen(one_entity(), quantity_bound=5) == "pgsr-hierarchical-dp"
    assert chosen(one_entity(), True, quantity_bound=5) == "joint-counts"
    assert chosen(one_group()) == "pgsr-hierarchical-dp"
    assert chosen(one_group(), True) == "joint-counts"
    with pytest.raises(SpecError, match="unknown mechanism 'topdwn'; there are"):
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

    def interrupt(step):
        if step == "estimating":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(data, **options, progress=interrupt)
    assert ledger.account("people").left == 0
    with pytest.raises(ReleaseError, match="an interrupted release whose budget is spent"):
        release(data, **options)
    made = resume(tmp_path / "kept")
    release_id = made.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok
    assert ledger.account("people").spendings[0].release_id == release_id
    assert Measurements.load(tmp_path / "release" / "measurements.parquet").ledgered
    with pytest.raises(ReleaseError, match="no measurements"):
        resume(tmp_path / "nowhere")


def test_a_refused_release_leaves_no_folder_behind(tmp_path):
    data = made_up(5, public_totals=False, name="people")
    Ledger(tmp_path / "ledger.db").open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    options = {"unit": one_entity(), "ledger": tmp_path / "ledger.db", "keep": tmp_path / "kept"}
    with pytest.raises(BudgetError):
        release(data, budget=Budget(epsilon=2), **options)
    assert not (tmp_path / "kept").exists()
