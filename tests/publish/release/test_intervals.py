"""The error bars of a release: in its table, in its files, and what `verify` finds when they are forged."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tallytree import Budget, Hierarchy, Ledger, Release, SpecError, one_entity, one_group, release, resume, verify
from tallytree.command.release_spec import ReleaseSpec
from tallytree.core.progress import Stage
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.linear import no_guarantee
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, Estimate
from tallytree.privacy import Neighbours
from tallytree.publish.folder import listed_files
from tallytree.publish.release import error_bars as release_intervals
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.fallback import Made
from tallytree.publish.release.release_run import choose_for, estimate_release
from tallytree.tables import GroupSizes, Sealed
from tests.command.test_release_spec import GOOD
from tests.oracles.example import made_up
from tests.publish.forging import claim_another_version, failed, remade, sign_again

COLUMNS = ["lower", "upper", "typical_lower", "typical_upper"]
LISTS = {"methods": ["sorted-sizes"] * 3}
FIRST = {"methods": ["sorted-sizes", "cumulative", "sorted-sizes"], "totals_share": "1/4", "largest_share": "1/8"}


def released(seed=11, *, public_totals=True, **more):
    options = {"budget": Budget(epsilon=1), "unit": one_entity(), **more}
    return release(made_up(seed, public_totals=public_totals), **options)


@pytest.mark.parametrize("public_totals", [False, True])
def test_every_count_stands_within_its_intervals(public_totals):
    made = released(public_totals=public_totals)
    table = made.table()
    assert table.column_names == ["level", "region", "name", "size", "count", *COLUMNS]
    cells = {name: table[name].to_numpy() for name in ["count", *COLUMNS]}
    for lower, upper in (("lower", "upper"), ("typical_lower", "typical_upper")):
        assert np.all((cells[lower] >= 0) & (cells[lower] <= cells["count"]) & (cells["count"] <= cells[upper]))
    again = guaranteed(made.measurements, made.counts, level=0.95)
    assert np.array_equal(cells["lower"], again.lower.ravel())
    assert np.array_equal(cells["upper"], again.upper.ravel())


@pytest.mark.parametrize("which", ["all", "guaranteed", "none"])
def test_only_the_intervals_that_were_asked_for_are_there(which, tmp_path):
    made = released(intervals=which, confidence=0.9)
    expected = {"all": COLUMNS, "guaranteed": COLUMNS[:2], "none": []}[which]
    assert made.table().column_names[5:] == expected
    made.save(tmp_path / "release")
    assert pq.read_schema(tmp_path / "release" / "counts.parquet").names[5:] == expected
    assert verify(tmp_path / "release").faults == ()
    again = Release.load(tmp_path / "release")
    assert again.table().equals(made.table(), check_metadata=True)
    assert again.error_bars.which == which


def test_columns_say_what_they_promise_and_at_which_level(tmp_path):
    made = released(confidence=0.9)
    made.save(tmp_path / "release")
    statement = json.loads((tmp_path / "release" / "privacy.json").read_text())["intervals"]
    assert statement["confidence"] == 0.9
    package = json.loads((tmp_path / "release" / "datapackage.json").read_text())
    fields = {field["name"]: field for field in package["resources"][0]["schema"]["fields"]}
    schema = pq.read_schema(tmp_path / "release" / "counts.parquet")
    for name in COLUMNS:
        text = schema.field(name).metadata[b"description"].decode()
        assert schema.field(name).metadata[b"confidence"] == b"0.9"
        assert "90 %" in text
        assert "separately for each cell and not jointly" in text
        assert ("it fails where" in text) == name.startswith("typical")
        assert fields[name]["description"] == statement["columns"][name] == text
        assert fields[name]["confidence"] == 0.9


def test_typical_intervals_exist_for_every_mechanism_that_can_be_released(tmp_path):
    tree = Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["1", "2", "3"]}, ["state", "county"])
    counts = np.array([[1, 5, 2], [0, 3, 4], [2, 9, 1]])
    alone = Hierarchy.from_edges([("all", "")])
    for name, mechanism in MECHANISMS.items():
        if mechanism.refused:
            continue
        data = GroupSizes(tree, 2, Sealed(counts), leaf_totals=counts.sum(axis=1))
        if name == "naive":
            data = GroupSizes(alone, 2, Sealed(counts[:1]), leaf_totals=counts[:1].sum(axis=1))
        made = release(data, budget=Budget(epsilon=2), unit=one_entity(), mechanism=name)
        if name == "pgsr-hierarchical-tables" and made.error_bars.typical is None:
            assert (
                "cannot estimate from fresh noise" in made.error_bars.missing["typical"]
            )  # one of the paper's domains is empty
        else:
            assert made.error_bars.typical is not None, name
        made.save(tmp_path / name)
        assert verify(tmp_path / name).faults == (), name


@pytest.mark.parametrize("options", [{**LISTS, "totals_share": "1/4"}, {**LISTS, "largest_share": "1/8"}, FIRST])
def test_lists_of_settled_lengths_and_sizes_have_intervals_that_verify(options, tmp_path):
    public = "totals_share" not in options
    made = released(public_totals=public, mechanism="coc-matching", options=options, budget=Budget(epsilon=4))
    bars = made.error_bars
    assert ((bars.guaranteed.lower <= made.counts) & (made.counts <= bars.guaranteed.upper)).all()
    assert (bars.guaranteed.upper - bars.guaranteed.lower).max() < 1 << 20
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").faults == ()
    assert Release.load(tmp_path / "release").table().equals(made.table(), check_metadata=True)


@pytest.mark.parametrize("options", [{"leaves": "lists"}, {"leaves": "at_least", "borrow": False}, {}])
@pytest.mark.parametrize("priority", ["balanced", "upper"])
def test_the_default_has_both_kinds_however_leaves_are_measured(options, priority, tmp_path):
    made = released(mechanism="tallytree", options=options, priority=priority)
    assert made.error_bars.guaranteed is not None
    assert made.error_bars.typical is not None
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").faults == ()
    assert Release.load(tmp_path / "release").made_by.options == made.made_by.options


def test_what_has_no_guarantee_has_empty_columns_that_say_why(tmp_path):
    made = released(mechanism="pgsr-chain", budget=Budget(epsilon=4))
    table = made.table()
    assert table["lower"].null_count == table["upper"].null_count == len(table)
    assert table["typical_lower"].null_count == table["typical_upper"].null_count == 0
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").faults == ()
    again = Release.load(tmp_path / "release")
    assert again.table().equals(table, check_metadata=True)
    told = pq.read_schema(tmp_path / "release" / "counts.parquet").field("upper").metadata[b"description"].decode()
    assert told == no_guarantee(made.measurements)
    text = (tmp_path / "release" / "counts.csv").read_text().splitlines()[1]
    assert ",,," in text


def test_csv_and_parquet_hold_the_same_intervals_and_survive_saving_again(tmp_path):
    made = released(public_totals=False)
    made.save(tmp_path / "release")
    text = pa.csv.read_csv(tmp_path / "release" / "counts.csv")
    stored = pq.read_table(tmp_path / "release" / "counts.parquet")
    for name in COLUMNS:
        assert text[name].to_pylist() == stored[name].to_pylist() == made.table()[name].to_pylist()
    Release.load(tmp_path / "release").save(tmp_path / "again")
    for name in listed_files(tmp_path / "release"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "release" / name).read_bytes()


def test_a_release_from_before_there_were_intervals_loads_and_verifies(tmp_path):
    made = released(intervals="none")
    folder = tmp_path / "release"
    made.save(folder)
    assert "intervals" not in json.loads((folder / "privacy.json").read_text())
    names = [field["name"] for field in package_fields(folder)]
    assert names == pq.read_schema(folder / "counts.parquet").names == ["level", "region", "name", "size", "count"]
    again = Release.load(folder)
    assert again.error_bars.which == "none"
    assert np.array_equal(again.counts, made.counts)
    assert verify(folder).faults == ()


def package_fields(folder):
    return json.loads((folder / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]


def test_a_missing_row_has_an_interval_too(tmp_path, monkeypatch):
    monkeypatch.setattr("tallytree.publish.release.table_layout.SMALL", 10)
    made = release(made_up(2, public_totals=False, max_size=40), budget=Budget(epsilon="0.2"), unit=one_entity())
    folder = tmp_path / "sparse"
    made.save(folder)
    assert verify(folder).faults == ()
    again = Release.load(folder)
    there, bars = made.counts != 0, again.error_bars
    assert 0 < np.count_nonzero(~there) < there.size
    for kind in ("guaranteed", "typical"):
        before, after = getattr(made.error_bars, kind), getattr(bars, kind)
        assert np.array_equal(after.lower, before.lower)
        assert np.array_equal(after.upper[there], before.upper[there])
        assert np.all(after.upper >= before.upper)
    stated = json.loads((folder / "privacy.json").read_text())["intervals"]
    assert "a cell without a row has count 0" in stated["left_out"]
    level = made.hierarchy.level_slice(1)
    largest = int(made.error_bars.typical.upper[level][~there[level]].max())
    assert stated["left_out_at_most"]["state"]["typical_upper"] == largest
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "privacy.json").read_bytes() == (folder / "privacy.json").read_bytes()
    edit(folder, "privacy.json", lambda value: value["intervals"]["left_out_at_most"]["state"].update(upper=1))
    assert any("intervals.left_out_at_most.state.upper is 1" in fault for fault in verify(folder).faults)
    edit(folder, "privacy.json", lambda value: value["intervals"].update(left_out="no idea"))
    assert any("intervals.left_out is 'no idea'" in fault for fault in verify(folder).faults)


def test_bad_choices_are_refused_before_anything_is_spent(tmp_path):
    data = made_up(5, public_totals=False, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    options = {"budget": Budget(epsilon=1), "unit": one_entity(), "ledger": ledger, "keep": tmp_path / "kept"}
    with pytest.raises(SpecError, match="intervals = 'some' is unknown; choose from 'all', 'guaranteed', 'none'"):
        release(data, intervals="some", **options)
    for confidence in (0, 0.3, 1, 95, "high", True):
        with pytest.raises(SpecError, match="level of an interval"):
            release(data, confidence=confidence, **options)
    assert not (tmp_path / "kept").exists()
    assert ledger.account("people").spendings == ()


def test_the_spec_says_which_intervals_and_at_which_level(tmp_path):
    def load(extra):
        (tmp_path / "release.toml").write_text(f"{GOOD}\n[release]\n{extra}\n")
        return ReleaseSpec.load(tmp_path / "release.toml").release

    assert (load("").intervals, float(load("").confidence)) == ("all", 0.95)
    assert float(load('intervals = "guaranteed"\nconfidence = 0.9').confidence) == 0.9
    with pytest.raises(SpecError, match=r"\[release\] intervals: .*'all', 'guaranteed' or 'none', not 'some'"):
        load('intervals = "some"')
    with pytest.raises(SpecError, match="level of an interval is 95"):
        load("confidence = 95.0")


def test_progress_tells_of_the_replicates_and_of_a_long_wait(tmp_path):
    steps = []
    made = released(progress=steps.append, keep=tmp_path / "kept")
    assert Stage("typical intervals", 25, 25) in steps
    for doing in (
        "reserving disk space for the measurements",
        "storing the measurements",
        "estimating",
        "guaranteed intervals",
    ):
        done = [(stage.done, stage.of, stage.unit) for stage in steps if stage.doing == doing]
        assert (0, 1000, "%") in done
        assert done == sorted(done)
    assert len({stage.done for stage in steps if stage.doing == "estimating"}) > 2
    again = resume(tmp_path / "kept", intervals="guaranteed", confidence=0.8)
    assert (again.error_bars.which, again.error_bars.confidence) == ("guaranteed", 0.8)
    long = []
    slow = Made(made.measurements, Estimate(made.counts, ""), made.made_by, 24.0, None)
    release_intervals.error_bars(slow, Publication(), long.append)
    waiting = [stage for stage in long if stage.doing == "typical intervals"]
    about = 'about 10 min; intervals = "guaranteed" leaves them out'
    assert waiting[0] == Stage("typical intervals", 0, 25, about, seconds_left=600.0)
    assert waiting[-1] == Stage("typical intervals", 25, 25, about)


def test_an_estimator_that_fails_on_fresh_noise_does_not_lose_the_release(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise SpecError("a domain is empty")

    monkeypatch.setattr("tallytree.estimate.intervals.typical.typical", fail)
    made = released()
    assert made.table()["typical_upper"].null_count == made.counts.size
    assert made.table()["upper"].null_count == 0
    assert "cannot estimate from fresh noise (a domain is empty)" in made.error_bars.missing["typical"]
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").faults == ()
    assert Release.load(tmp_path / "release").table().equals(made.table(), check_metadata=True)


# -------------------------------------------------------------------- what verify finds


@pytest.fixture(scope="module", params=[False, True], ids=["private totals", "public totals"])
def original(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    released(public_totals=request.param).save(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")


def edit(folder, name, change):
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))
    sign_again(folder)


def rewrite(folder, change, schema=None):
    """Change the rows in both formats and sign again, as a careful forger would."""
    schema = schema or pq.read_schema(folder / "counts.parquet")
    rows = [change(dict(row)) for row in pq.read_table(folder / "counts.parquet").to_pylist()]
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, folder / "counts.parquet")
    pa.csv.write_csv(table, folder / "counts.csv")
    sign_again(folder)


def at(row, region="C", size=3):
    return (row["region"], row["size"]) == (region, size)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda row: {"upper": row["upper"] - 1}, "upper is "),
        (lambda row: {"lower": row["count"], "upper": row["count"]}, "upper is "),
        (lambda row: {"lower": row["lower"] + 1, "upper": row["upper"] + 1}, "lower is "),
        (lambda row: {"upper": row["upper"] + 1}, "upper is "),
        (lambda row: {"lower": row["count"] + 1}, "lower is "),
        (lambda row: {"upper": None}, "upper is None"),
        (lambda row: {"lower": None}, "lower is None"),
        (lambda row: {"typical_lower": row["count"] + 1}, "typical_lower is "),
        (lambda row: {"typical_upper": row["count"] - 1}, "typical_upper is "),
        (lambda row: {"typical_upper": None}, "typical_upper is None"),
        (lambda row: {"typical_lower": -3}, "the typical_lower end of region 'C', size 3 is negative"),
        (lambda row: {"typical_upper": 2**62 + 1}, "typical_upper is 4611686018427387905"),
    ],
)
def test_forged_intervals_are_found(folder, change, found):
    rewrite(folder, lambda row: {**row, **change(row)} if at(row) else row)
    faults = verify(folder).faults
    assert any("region 'C', size 3" in fault and found in fault for fault in faults), faults


@pytest.mark.parametrize("column", ["typical_lower", "typical_upper"])
def test_a_typical_interval_that_is_not_computed_again_holds_its_count_within_the_public_total(tmp_path, column):
    made, folder = released(), tmp_path / "release"
    made.save(folder)
    total = int(made.measurements.region_totals[made.hierarchy.index["C"]])
    rewrite(folder, lambda row: {**row, column: total + 1} if at(row) else row)
    claim_another_version(folder)
    assert "counts.parquet can be reproduced" in failed(verify(folder))
    wanted = "region 'C', size 3: the typical interval does not hold its count"
    assert any(wanted in fault for fault in verify(folder, typical=False).faults)


def test_a_changed_confidence_is_found_in_one_file_and_in_all(folder):
    edit(folder, "privacy.json", lambda value: value["intervals"].update(confidence=0.99))
    assert {remade("counts.parquet"), remade("privacy.json"), remade("datapackage.json")} <= set(failed(verify(folder)))

    made = Release.load(folder.parent / "release")  # the same lie, told everywhere
    bars = made.error_bars
    lying = replace(
        bars,
        confidence=0.99,
        of={**bars.of, "counts": {kind: replace(one, level=0.99) for kind, one in bars.of["counts"].items()}},
    )
    replace(made, error_bars=lying).save(folder, replace=True)
    assert {remade("counts.parquet"), remade("entities.parquet")} <= set(failed(verify(folder)))


def test_a_changed_description_is_found_wherever_it_stands(folder):
    schema = pq.read_schema(folder / "counts.parquet")
    place = schema.names.index("upper")
    changed = schema.field(place).with_metadata({"description": "true", "confidence": "0.95"})
    rewrite(folder, lambda row: row, schema.set(place, changed))
    wanted = "counts.parquet: its columns have other names, types or descriptions than tallytree writes"
    assert wanted in verify(folder).faults

    def in_package(value):
        value["resources"][1]["schema"]["fields"][5]["confidence"] = 0.999

    edit(folder, "datapackage.json", in_package)
    wanted = "datapackage.json: resources.1.schema.fields.5.confidence is 0.999"
    assert any(wanted in fault for fault in verify(folder).faults)
    edit(folder, "privacy.json", lambda value: value["intervals"]["columns"].update(lower="certain"))
    assert any("intervals.columns.lower is 'certain'" in fault for fault in verify(folder).faults)


def test_columns_that_are_not_promised_or_not_there_are_found(folder):
    edit(folder, "privacy.json", lambda value: value["intervals"].update(which="guaranteed"))
    assert any("its columns are" in fault for fault in verify(folder).faults)
    edit(folder, "privacy.json", lambda value: value.pop("intervals"))
    assert any("its columns are" in fault for fault in verify(folder).faults)
    edit(folder, "privacy.json", lambda value: value.update(intervals={"which": "every"}))
    assert any("intervals = 'every' is unknown" in fault for fault in verify(folder).faults)


def test_a_false_excuse_for_empty_columns_is_found(folder):
    made = Release.load(folder)
    bars = made.error_bars
    typical = {what: {"typical": kinds["typical"]} for what, kinds in bars.of.items()}
    lying = replace(bars, of=typical, missing={"guaranteed": "No interval is possible."})
    replace(made, error_bars=lying).save(folder, replace=True)
    assert any("intervals.guaranteed is 'No interval is possible.'" in fault for fault in verify(folder).faults)
    edit(folder, "privacy.json", lambda value: value["intervals"].update(typical="The dog ate them."))
    assert any("intervals.typical is 'The dog ate them.'" in fault for fault in verify(folder).faults)


# -------------------------------------------------------------------- coverage, on seeded noise


@pytest.mark.parametrize(("public", "unit"), [(False, one_entity()), (True, one_group())])
def test_the_intervals_of_releases_hold_the_truth(public, unit):
    """Guaranteed: seeds fix everything. Typical: fresh noise moves a half-width a little, the bound is far below."""
    rng = np.random.default_rng(1)
    tree = made_up(0, public_totals=public).hierarchy
    counts = rng.poisson(80 * 0.5 ** np.arange(7), (tree.leaf_count, 7))
    truth = Truth("made up", tree, counts, public_totals=public)
    name = "joint-counts" if public else "joint-cumulative"
    plan = MECHANISMS[name].plan(tree, Budget(epsilon=1), unit)
    kinds = {"guaranteed": range(200), "typical": range(10)}
    held = {kind: [] for kind in kinds}
    for kind, seeds in kinds.items():
        for seed in seeds:
            measurements = seeded_measurements(truth, plan, "release intervals", seed)
            which = "all" if kind == "typical" else kind
            made = estimate_release(
                measurements, choose_for(measurements, name), Publication(intervals=which, confidence=0.9)
            )
            found = getattr(made.error_bars, kind)
            held[kind].append((found.lower <= truth.all_levels()) & (truth.all_levels() <= found.upper))
    assert np.mean(held["guaranteed"]) >= 0.9
    assert np.mean(held["typical"]) >= 0.8
