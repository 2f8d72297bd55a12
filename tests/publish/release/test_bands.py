"""Releases with bands of sizes: made, saved, verified, loaded and asked; and forged ones are found."""

import json
import shutil
from fractions import Fraction

import numpy as np
import pytest

from tallytree import (
    Budget,
    BudgetError,
    Ledger,
    Release,
    ReleaseError,
    SpecError,
    load_measurements,
    measure,
    one_entity,
    one_group,
    release,
    save_measurements,
    verify,
)
from tallytree.lab.truth import measured_without_noise
from tallytree.mechanisms import MECHANISMS, prepare
from tallytree.privacy import MeasurementQuery, Neighbours, Plan
from tallytree.privacy.plan import Band
from tallytree.publish.release.release_statement import bands_in_words
from tests.faults.mutations import mend
from tests.oracles.example import made_up
from tests.publish.release.test_measurements_file import rewritten, same

BANDS = [
    {"to": 2, "shares": [1, 1, 3]},
    {"to": 4, "shares": {"total": 4, "state": 0, "county": 1}},
    {"shares": [1, 0, 1]},
]
WAYS = {
    "at_least": {"leaves": "at_least", "bands": BANDS},
    "lists": {"leaves": "lists", "bands": BANDS},
    "a list of what is above 4": {"leaves": "at_least", "bands": [*BANDS[:2], {**BANDS[2], "leaves": "lists"}]},
}
BUDGETS = {"at_least": Budget(epsilon=1), "lists": Budget(rho=1), "a list of what is above 4": Budget(epsilon=2)}


def made(way, public, **more):
    options = WAYS[way] if public else {**WAYS[way], "totals_share": "1/10"}
    how = {"mechanism": "tallytree", "unit": one_entity(), "budget": BUDGETS[way], **more}
    return release(made_up(3, public_totals=public), options=options, **how)


@pytest.fixture(scope="module", params=[way for way in WAYS if way != "at_least"])  # one of these has at_least too
def stored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    made(request.param, public=True, intervals="none").save(folder)
    return folder


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_release_with_bands_is_made_saved_verified_loaded_and_asked(way, public, tmp_path):
    before = made(way, public)
    before.save(tmp_path / "release")
    assert verify(tmp_path / "release").faults == ()
    after = Release.load(tmp_path / "release")
    same(before.measurements, after.measurements)
    assert np.array_equal(before.counts, after.counts)
    assert after.made_by.options["bands"][-1]["to"] == 6
    answer = after.estimate("A", ">=3")
    assert answer.released == before.estimate("A", ">=3").released
    assert answer.typical is not None
    assert answer.guaranteed is not None


def test_what_is_asked_is_each_band_divided_in_its_own_way(stored):
    measurements = Release.load(stored).measurements
    asked = {(part.level, part.sizes): part.share for part in measurements.measured}
    assert asked == {
        (0, Band(1, 2)): Fraction(1, 5),
        (1, Band(1, 2)): Fraction(1, 5),
        (2, Band(1, 2)): Fraction(3, 5),
        (0, Band(3, 4)): Fraction(4, 5),
        (2, Band(3, 4)): Fraction(1, 5),
        (0, Band(5, 6)): Fraction(1, 2),
        (2, Band(5, 6)): Fraction(1, 2),
    }


def test_statement_and_package_explain_bands_and_say_nothing_of_them_where_there_are_none(stored, tmp_path):
    told = json.loads((stored / "privacy.json").read_text(encoding="utf-8"))["bands_of_sizes"]
    amount = Release.load(stored).measurements.budget.amount
    assert f"added up at each size: {amount} at sizes 1 to 6. The largest of these sums is the budget." in told
    assert "a list of a band of sizes holds" in (stored / "datapackage.json").read_text(encoding="utf-8")
    plain = release(made_up(3, public_totals=True), budget=Budget(epsilon=1), unit=one_entity(), intervals="none")
    plain.save(tmp_path / "plain")
    assert "bands_of_sizes" not in json.loads((tmp_path / "plain" / "privacy.json").read_text(encoding="utf-8"))
    assert "band of sizes" not in (tmp_path / "plain" / "datapackage.json").read_text(encoding="utf-8")


def test_sums_that_differ_from_size_to_size_are_told_apart():
    asked = (
        MeasurementQuery("at_least", 0, Fraction(1), Band(2, 4)),
        MeasurementQuery("at_least", 2, Fraction(1, 2), Band(5, 6)),
    )
    measurements = measure(made_up(3, public_totals=True), Plan(Budget(epsilon=1), one_entity(), asked))
    assert "each size: 0 at size 1, 1 at sizes 2 to 4, 0.5 at sizes 5 to 6. The" in bands_in_words(measurements)


def test_the_ledger_is_charged_the_budget_and_not_the_sum_of_all_bands(tmp_path):
    private = made_up(3, public_totals=True, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(private, one_entity()))
    how = {"mechanism": "tallytree", "unit": one_entity(), "budget": Budget(epsilon=1), "intervals": "none"}
    release(private, options=WAYS["at_least"], ledger=ledger, **how)
    assert ledger.account("people").left == 0


def test_the_truth_comes_back_where_there_is_next_to_no_noise():
    """Each way to measure leaves, with upper levels that are measured for some sizes alone."""
    data = made_up(3, public_totals=True)
    for options in WAYS.values():
        mechanism, plan = prepare(
            "tallytree",
            options,
            neighbours=Neighbours.of(data, one_entity()),
            hierarchy=data.hierarchy,
            totals=data.region_totals,
            budget=Budget(epsilon=10**5),
        )
        measurements = measured_without_noise(data, plan)
        truth = data.hierarchy.aggregate(data.counts.open_at_the_privacy_border())
        assert np.array_equal(mechanism.estimate(measurements).counts, truth)


# -------------------------------------------------------------------- forged ones

FORGED = {
    "a wider band": lambda part: part["sizes"].__setitem__(1, part["sizes"][1] + 1),
    "a narrower band": lambda part: part["sizes"].__setitem__(1, part["sizes"][1] - 1),
    "a band that begins earlier": lambda part: part["sizes"].__setitem__(0, part["sizes"][0] - 1),
    "another band": lambda part: part.update(sizes=[1, 2] if part["sizes"] != [1, 2] else [3, 4]),
    "all sizes": lambda part: part.pop("sizes"),
    "nothing": lambda part: part.update(sizes=None),
    "words": lambda part: part.update(sizes=["one", "two"]),
    "three ends": lambda part: part["sizes"].append(9),
    "fractions": lambda part: part.update(sizes=[part["sizes"][0] * 1.0, part["sizes"][1] * 1.0]),
    "sizes that are not there": lambda part: part.update(sizes=[7, 8]),
}


def forge(folder, change, place, *, statement, file):
    """Change what is said of one measurement's band, in one or both of the files that say it."""
    if statement:
        value = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
        change(value["measurements"][place])
        (folder / "privacy.json").write_text(json.dumps(value), encoding="utf-8")
    if file:
        changed = rewritten(folder / "measurements.parquet", lambda facts: change(facts["measured"][place]))
        changed.replace(folder / "measurements.parquet")
    mend(folder)


@pytest.mark.parametrize("where", [(True, False), (False, True), (True, True)], ids=["statement", "file", "both"])
@pytest.mark.parametrize("change", FORGED)
def test_a_forged_band_is_found_wherever_it_is_forged(stored, tmp_path, change, where):
    for place in (0, -1):
        folder = shutil.copytree(stored, tmp_path / f"release {place}")
        forge(folder, FORGED[change], place, statement=where[0], file=where[1])
        assert not verify(folder).ok


def test_another_band_of_sizes_is_found(stored, tmp_path):
    folder = shutil.copytree(stored, tmp_path / "release")
    forge(folder, lambda part: part.update(sizes=[1, 3]), 0, statement=True, file=False)
    assert any("privacy.json: measurements.0.sizes" in fault for fault in verify(folder).faults)


@pytest.mark.parametrize("change", ["nothing", "words", "three ends", "sizes that are not there"])
def test_a_file_with_what_is_no_band_is_refused(tmp_path, change):
    measurements = made("lists", public=True, intervals="none").measurements
    save_measurements(measurements, tmp_path / "m.parquet")
    same(measurements, load_measurements(tmp_path / "m.parquet"))
    with pytest.raises(ReleaseError, match="is not a readable file of measurements"):
        load_measurements(rewritten(tmp_path / "m.parquet", lambda facts: FORGED[change](facts["measured"][0])))


# -------------------------------------------------------------------- options

REFUSED = {
    "bands is 3": ({"bands": 3}, SpecError),
    "bands is empty": ({"bands": []}, SpecError),
    "bands contains 4; expected a list": ({"bands": [4]}, SpecError),
    "a band of sizes has no shares": ({"bands": [{"to": 3}]}, SpecError),
    "unknown key 'more' of a band of sizes": ({"bands": [{"more": 1, "shares": [1, 1, 1]}]}, SpecError),
    "every band but the last": ({"bands": [{"shares": [1, 1, 1]}, {"shares": [1, 1, 1]}]}, SpecError),
    "a larger size than the band before it": ({"bands": [{"to": n, "shares": [1, 1, 1]} for n in (3, 3)]}, SpecError),
    "expected an integer, 1 or more": ({"bands": [{"to": 0, "shares": [1]}, {"shares": [1]}]}, SpecError),
    "expected 3 shares": ({"bands": [{"to": 3, "shares": [1]}, {"shares": [1, 1, 1]}]}, SpecError),
    "a number for each level": ({"bands": [{"shares": "half"}]}, SpecError),
    "the largest size is 6: leave out": ({"bands": [{"to": 5, "shares": [1, 1, 1]}]}, SpecError),
    "so the next has no sizes": ({"bands": [{"to": 6, "shares": [1, 1, 1]}, {"shares": [1, 1, 1]}]}, SpecError),
    "lowest level must have a share": ({"bands": [{"to": 3, "shares": [1, 1, 1]}, {"shares": [1, 1, 0]}]}, BudgetError),
    "leaves must be at_least or beliefs or lists": ({"bands": [{"shares": [1, 1, 1], "leaves": "split"}]}, SpecError),
    "lists of sizes need the number of groups": ({"bands": [{"shares": [1, 1, 1], "leaves": "lists"}]}, SpecError),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bands_that_cannot_be_are_refused_before_anything_is_spent(message, tmp_path):
    options, error = REFUSED[message]
    private = made_up(3, public_totals=False, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(private, one_entity()))
    how = {"mechanism": "tallytree", "unit": one_entity(), "budget": Budget(epsilon=1), "ledger": ledger}
    with pytest.raises(error, match=message):
        release(private, options=options, **how)
    assert ledger.account("people").spent == 0


@pytest.mark.parametrize("also", [{"shares": [1, 1, 1]}, {"priority": "leaves"}], ids=str)
def test_bands_beside_shares_or_a_priority_are_refused(also):
    with pytest.raises(SpecError, match="leave out shares and priority"):
        made("at_least", public=True, **also)


def test_one_band_is_all_sizes():
    mechanism = MECHANISMS["tallytree"].configured({"bands": [{"shares": [1, 0, 3]}], "leaves": "at_least"})
    tree = made_up(3, public_totals=True).hierarchy
    plan = mechanism.plan(tree, Budget(epsilon=1), one_group())
    assert [(one.level, one.share, one.sizes) for one in plan.queries] == [
        (0, Fraction(1, 4), None),
        (2, Fraction(3, 4), None),
    ]


@pytest.mark.parametrize("shares", [[0, 1, 3], [0, 0, 1], [2, 0, 1]])
def test_levels_without_a_share_are_verified_too(shares, tmp_path):
    how = {"mechanism": "tallytree", "budget": Budget(epsilon=1), "unit": one_entity(), "intervals": "none"}
    release(made_up(3, public_totals=True), shares=shares, options={"leaves": "at_least"}, **how).save(
        tmp_path / "made"
    )
    assert verify(tmp_path / "made").faults == ()
