"""Numbers of entities beside the sizes: they agree, are stored and verified, and means follow from them."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tallytree as tt
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy import Neighbours
from tallytree.publish.folder import MANIFEST
from tallytree.publish.release.descriptions import entity_description
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import estimate_release
from tests.oracles.trees import even_tree
from tests.publish.forging import failed, remade, sign_again

WAYS = {
    "at_least": {"leaves": "at_least"},
    "lists": {"leaves": "lists"},
    "entities": {"entities_share": "1/3"},
    "bands": {"bands": [{"to": 3, "shares": [1, 1, 2]}, {"shares": [0, 0, 1], "leaves": "lists"}]},
}


def country(*, public_totals=True):
    counts = np.random.default_rng(4).poisson(9 * np.exp(-np.arange(7 + public_totals) / 3), (6, 7 + public_totals))
    return Truth("country", even_tree(2, 6), counts, public_totals)


def made(way, seed=None, *, public_totals=True, epsilon=1, **how):
    truth = country(public_totals=public_totals)
    private, options = truth.group_sizes(), WAYS[way]
    if way in ("lists", "bands") and not public_totals:
        options = {**options, "totals_share": "1/5"}
    if seed is None:
        budget = tt.Budget(epsilon=epsilon)
        return tt.release(private, budget=budget, unit="one_entity", mechanism="tallytree", options=options, **how)
    mechanism, plan = prepare(
        "tallytree",
        options,
        neighbours=Neighbours.of(private, tt.one_entity()),
        hierarchy=truth.hierarchy,
        totals=private.region_totals,
        budget=tt.Budget(epsilon=epsilon),
    )
    return estimate_release(
        seeded_measurements(truth, plan, way, seed, derive_facts=mechanism.derive_facts), mechanism, Publication(**how)
    )


@pytest.mark.parametrize("public_totals", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_they_are_those_of_the_sizes_and_hold_over_files(way, public_totals, tmp_path):
    release = made(way, public_totals=public_totals)
    release.save(tmp_path / "r")
    verification = tt.verify(tmp_path / "r")
    assert verification.ok, verification
    read = pq.read_table(tmp_path / "r" / "entities.parquet")
    counts = pq.read_table(tmp_path / "r" / "counts.parquet").to_pylist()
    for row in read.to_pylist():
        here = [one for one in counts if one["region"] == row["region"]]
        assert row["entities"] == sum(one["size"] * one["count"] for one in here)
        assert row["open_groups"] == next(one["count"] for one in here if one["size"] == 7)
        assert row["lower"] <= row["entities"] <= row["upper"]
        assert row["typical_lower"] <= row["entities"] <= row["typical_upper"]
    again = tt.Release.load(tmp_path / "r")
    assert again.entities_table().equals(read, check_metadata=True)
    assert again.entities.tolist() == read["entities"].to_pylist()
    assert pyarrow.csv.read_csv(tmp_path / "r" / "entities.csv").to_pylist() == read.to_pylist()


@pytest.mark.parametrize("which", ["none", "guaranteed"])
def test_a_release_with_fewer_intervals_has_their_columns_alone(which, tmp_path):
    release = made("at_least", intervals=which)
    names = release.entities_table().schema.names
    assert names == [
        "level",
        "region",
        "name",
        "entities",
        "open_groups",
        *(("lower", "upper") if which[0] == "g" else ()),
    ]
    release.save(tmp_path / "r")
    assert tt.verify(tmp_path / "r").ok


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    made("at_least").save(folder)
    return folder


@pytest.mark.parametrize(
    "column", ["entities", "open_groups", "lower", "upper", "level", "region", "name", "typical_lower"]
)
@pytest.mark.parametrize("only", ["parquet", "csv", "both"])
def test_a_forged_cell_is_found(column, only, original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "r")
    table = pq.read_table(folder / "entities.parquet")
    rows = table.to_pylist()
    rows[2][column] = rows[1][column] if isinstance(rows[2][column], str) else rows[2]["upper"] + 10_000
    if rows[2][column] == table[column][2].as_py():
        rows[2][column] = "elsewhere"
    forged = pa.Table.from_pylist(rows, schema=table.schema)
    if only != "csv":
        pq.write_table(forged, folder / "entities.parquet")
    if only != "parquet":
        pyarrow.csv.write_csv(forged, folder / "entities.csv")
    sign_again(folder)
    faults = tt.verify(folder).faults
    assert any("entities" in fault for fault in faults), faults


def test_typical_intervals_are_computed_again_where_that_is_asked(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "r")
    table = pq.read_table(folder / "entities.parquet")
    wider = pa.array([end + 1 for end in table["typical_upper"].to_pylist()])
    place = table.schema.get_field_index("typical_upper")
    forged = table.set_column(place, table.schema.field(place), wider)
    pq.write_table(forged, folder / "entities.parquet")
    pyarrow.csv.write_csv(forged, folder / "entities.csv")
    sign_again(folder)
    faults = tt.verify(folder, typical=True).faults
    assert any("entities" in fault and "typical" in fault for fault in faults), faults


def test_rows_that_are_missing_or_in_another_order_and_other_columns_are_found(original, tmp_path):
    right = pq.read_table(original / "entities.parquet")
    assert right.equals(tt.Release.load(original).entities_table())
    turned = right.take(list(range(right.num_rows))[::-1])
    for number, forged in enumerate((turned, right.slice(1), right.drop_columns("upper"))):
        folder = shutil.copytree(original, tmp_path / str(number))
        pq.write_table(forged, folder / "entities.parquet")
        pyarrow.csv.write_csv(forged, folder / "entities.csv")
        sign_again(folder)
        assert {remade("entities.parquet"), remade("entities.csv")} <= set(failed(tt.verify(folder)))
    for name in ("entities.parquet", "entities.csv"):
        folder = shutil.copytree(original, tmp_path / f"without {name}")
        (folder / name).unlink()
        manifest = json.loads((folder / MANIFEST).read_text())
        del manifest["files"][name]
        (folder / MANIFEST).write_text(json.dumps(manifest))
        assert not tt.verify(folder).ok


def test_a_damaged_file_is_named_when_a_release_is_loaded(original, tmp_path):
    folder = shutil.copytree(original, tmp_path / "r")
    table = pq.read_table(folder / "entities.parquet")
    pq.write_table(table.drop_columns("upper"), folder / "entities.parquet")
    with pytest.raises(tt.ReleaseError, match=r"entities in .* are damaged: its columns are"):
        tt.Release.load(folder)
    pq.write_table(table.slice(1), folder / "entities.parquet")
    with pytest.raises(tt.ReleaseError, match=r"entities in .* are damaged: region .* is missing"):
        tt.Release.load(folder)


def test_what_is_counted_and_what_is_cut_off_is_said():
    people = Neighbours(tt.one_entity(), 7, public_totals=False)
    assert "each row of the data counts as one. Groups of 7 or more count as 7" in entity_description(people, 7)
    trips = Neighbours(tt.one_entity(), 7, public_totals=False, quantity_bound=3)
    assert "with its quantity, at most 3" in entity_description(trips, 7)
    bounded = Neighbours(tt.one_entity(), 7, False, rows_per_entity=2, entity_column=True, rows_were_bounded=True)
    assert "as truncated" in entity_description(bounded, 7)


def test_the_cut_off_stands_beside_every_number_of_entities(tmp_path):
    """Groups larger than the largest size lose entities, and an interval around the rest would hide that."""
    made_now, capped = made("at_least"), "sizes above 7 counted as 7"
    number = f"{made_now.entities[0]:,}"
    html = made_now.report(groups="households", entities="persons").html
    mean = f"{made_now.entities[0] / made_now.total:.2f}"
    for headline in (f"<b>{number} persons</b>", f"<b>{mean} persons</b>on average"):
        card = html[html.index(headline) :].partition("</li>")[0]
        assert card.endswith(capped)
    assert f"about {number} persons ({capped})" in html
    assert f"Persons and average size: {capped}.</caption>" in html
    script = html[html.rindex("<script") :]
    assert script.count("${capped}") == 3  # the facts of a region, the table of the regions below it, the map
    assert f"{number} entities ({capped})" in repr(made_now)
    for name in ("csvw", "json-stat", "sdmx-csv"):
        made_now.export(tmp_path / name, to=name)
        described = [path for path in (tmp_path / name).rglob("*") if path.suffix in (".json", ".xml")]
        assert any(capped in path.read_text(encoding="utf-8") for path in described), name


@pytest.mark.parametrize("public_totals", [True, False])
@pytest.mark.parametrize("way", ["lists", "bands", "entities"])
def test_means_hold_the_truth_as_promised(way, public_totals):
    """Guaranteed at 80 %: 5 standard deviations below that over 60 runs is what chance does once in millions."""
    truth, runs = country(public_totals=public_totals), 60
    every = truth.all_levels()
    sizes = np.arange(truth.first_size, truth.max_size + 1)
    tree, held = truth.hierarchy, np.zeros(3)
    asked = [[tree.ids[0]], [tree.ids[1]], [tree.ids[4], tree.ids[8]]]
    for seed in range(runs):
        release = made(way, seed, public_totals=public_totals, intervals="none")
        for number, regions in enumerate(asked):
            found = release.mean_size(regions, typical=False, confidence=0.8)
            low, high = found.guaranteed
            here = every[[tree.index[region] for region in regions]].sum(axis=0)
            held[number] += low <= (here @ sizes) / here.sum() <= high
            assert low <= found.released <= high
            assert "lower bound where there are larger ones" in found.sentence
    assert np.all(held / runs >= 0.8 - 5 * np.sqrt(0.16 / runs)), held / runs


def test_a_mean_is_sharper_where_the_number_of_entities_was_measured():
    widths = {}
    for way in ("at_least", "entities"):
        ends = made(way, 1, intervals="none").mean_size(None, typical=False).guaranteed
        widths[way] = ends[1] - ends[0]
    assert widths["entities"] < widths["at_least"]
