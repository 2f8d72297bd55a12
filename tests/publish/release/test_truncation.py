"""Where rows were dropped, whatever speaks of the truth says that it is the truth of what was kept."""

import json
import shutil
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import tallytree as tt
from tallytree.command.query import bands
from tallytree.privacy.relations import describe_relation, relation_to_json, sizes_from_json
from tallytree.publish.folder import write_json
from tallytree.publish.release.descriptions import truncation
from tests.publish.forging import failed, remade, sign_again

TREE = tt.Hierarchy.from_levels(pa.table({"city": ["Here"] * 2, "zone": ["a", "b"]}), ["city", "zone"])
TRIPS, DRIVERS, MOST = 20_000, 150, 20
DROPPED = "at most 20 rows of each entity were kept and any others dropped"


def trips(**more):
    """Every trip is a group of one row; a driver has 133 of them, so with a bound of 20 rows 85 % are dropped."""
    rows = {
        "trip": list(range(TRIPS)),
        "zone": ["ab"[number % 2] for number in range(TRIPS)],
        "driver": [number % DRIVERS for number in range(TRIPS)],
    }
    options = {"group": "trip", "region": "zone", "hierarchy": TREE, "max_size": 3, "name": "trips", **more}
    return tt.read(pa.table(rows), **options)


def released(private, **how):
    how = {"budget": tt.Budget(epsilon=1), "unit": tt.one_entity(), "intervals": "guaranteed", **how}
    return tt.release(private, **how)


@pytest.fixture(scope="module")
def truncated():
    return released(trips(entity="driver", rows_per_entity=MOST))


@pytest.fixture(scope="module")
def whole():
    return released(trips())


def test_an_interval_that_misses_the_truth_says_that_rows_were_dropped(truncated):
    answer = truncated.estimate("Here", typical=False)
    assert answer.guaranteed[1] < TRIPS / 2  # the truth before rows were dropped, which the interval is not about
    assert answer.truncated
    assert DROPPED in answer.sentence
    assert "For any data, the truth of the data as truncated lies from" in answer.sentence
    assert answer.to_json()["truncated"] is True
    for ask in (truncated.share("a", ">=2", typical=False), truncated.difference("a", "b", typical=False)):
        assert DROPPED in ask.sentence
    mean = truncated.mean_size("a", typical=False)
    assert "the truncated mean of the data as truncated" in mean.sentence


def test_every_file_of_a_truncated_release_says_it(truncated, tmp_path):
    folder = tmp_path / "release"
    truncated.save(folder)
    statement = json.loads((folder / "privacy.json").read_text())
    package = json.loads((folder / "datapackage.json").read_text())
    told = [statement["statement"], statement["truncation"], package["description"]]
    told += statement["intervals"]["columns"].values()
    fields = [field for resource in package["resources"] for field in resource["schema"]["fields"]]
    told += [field["description"] for field in fields if field["name"] in ("count", "entities", "lower", "upper")]
    schema = pq.read_schema(folder / "counts.parquet")
    told += [schema.field(name).metadata[b"description"].decode() for name in ("count", "lower", "upper")]
    schema = pq.read_schema(folder / "entities.parquet")
    told += [schema.field(name).metadata[b"description"].decode() for name in ("entities", "lower", "upper")]
    assert len(told) == 3 + 2 + 12 + 6
    for text in told:
        assert DROPPED in text
    for text in statement["intervals"]["columns"].values():
        assert "holds the true count of the data as truncated with a probability" in text
    assert "the bound on one entity's rows, 20" in statement["public"]
    assert tt.verify(folder).ok
    again = tt.Release.load(folder)
    assert DROPPED in again.estimate("a", typical=False).sentence
    assert again.table().schema == truncated.table().schema


def test_a_bound_of_one_row_is_not_called_checked(tmp_path):
    once = released(trips(entity="driver", rows_per_entity=1))
    words = describe_relation(once.measurements.neighbours)
    assert "checked" not in words
    assert "one entity with all its rows (one row; more were dropped blindly)" in words
    once.save(tmp_path / "once")
    assert tt.verify(tmp_path / "once").ok
    loaded = tt.Release.load(tmp_path / "once")
    assert "at most one row of each entity was kept" in loaded.estimate("Here", typical=False).sentence
    assert loaded.measurements.neighbours.truncated


def test_nothing_is_said_where_nothing_can_have_been_dropped(whole, tmp_path):
    answer = whole.estimate("Here", typical=False)
    assert answer.guaranteed[0] - 200 <= TRIPS <= answer.guaranteed[1] + 200  # ε = 1: further off than once in e⁵⁰
    assert not answer.truncated
    whole.save(tmp_path / "whole")
    for name in ("privacy.json", "datapackage.json"):
        assert "truncated" not in (tmp_path / "whole" / name).read_text()
    assert json.loads((tmp_path / "whole" / "privacy.json").read_text())["truncation"] is None
    assert "truncated" not in answer.sentence
    checked = tt.read(
        pa.table({"trip": [1, 2], "zone": ["a", "b"], "driver": [1, 2]}),
        group="trip",
        region="zone",
        hierarchy=TREE,
        max_size=3,
        entity="driver",
    )
    assert "one row each, checked" in describe_relation(tt.Neighbours.of(checked, tt.one_entity()))


def test_a_public_total_lost_nothing_and_says_so():
    groups = pa.table({"trip": list(range(TRIPS)), "zone": ["ab"[number % 2] for number in range(TRIPS)]})
    release = released(trips(entity="driver", rows_per_entity=MOST, groups=groups, groups_are_public=True))
    answer = release.estimate("a", typical=False)
    assert answer.guaranteed == (TRIPS / 2, TRIPS / 2)
    assert not answer.truncated
    assert release.estimate("a", [1], typical=False).truncated


def forged(folder, target, change):
    """A copy of a release with changed files, and a manifest that fits them."""
    shutil.copytree(folder, target)
    change(target)
    sign_again(target)
    return tt.verify(target)


def without(name, *path):
    """A change of one text: what was left out is no longer said."""

    def change(folder):
        content = json.loads((folder / name).read_text())
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        text = truncation(tt.Release.load(folder).measurements.neighbours)
        inner[path[-1]] = inner[path[-1]].replace(text, "").strip() or None
        write_json(folder / name, content)

    return change


@pytest.mark.parametrize(
    "change",
    [
        without("privacy.json", "truncation"),
        without("privacy.json", "statement"),
        without("datapackage.json", "description"),
        without("datapackage.json", "resources", 0, "schema", "fields", 4, "description"),
    ],
)
def test_verify_finds_a_file_that_no_longer_says_it(truncated, tmp_path, change):
    truncated.save(tmp_path / "release")
    outcome = forged(tmp_path / "release", tmp_path / "forged", change)
    assert failed(outcome) in ([remade("privacy.json")], [remade("datapackage.json")])


def test_verify_finds_a_statement_that_hides_the_bound(truncated, tmp_path):
    def change(folder):
        content = json.loads((folder / "privacy.json").read_text())
        del content["neighbours"]["rows_were_bounded"], content["truncation"]
        write_json(folder / "privacy.json", content)

    truncated.save(tmp_path / "release")
    assert not forged(tmp_path / "release", tmp_path / "forged", change).ok


def test_a_release_from_before_the_field_is_taken_for_truncated_by_its_bound():
    values = relation_to_json(tt.Neighbours(tt.one_entity(), 3, False, rows_per_entity=20))
    del values["rows_were_bounded"]
    assert DROPPED in truncation(sizes_from_json(values))
    values["rows_per_entity"] = 1
    assert truncation(sizes_from_json(values)) == ""


def test_bands_on_the_screen_hold_for_the_data_as_truncated(truncated, whole):
    def shown(release):
        console = Console(width=80, record=True, file=StringIO())
        console.print(bands(release, release.bands("a").to_pylist(), None))
        return " ".join(console.export_text().split())

    assert "hold jointly for any value of the truth of the data as truncated." in shown(truncated)
    assert "for any value of the truth." not in shown(truncated)
    assert "hold jointly for any value of the truth." in shown(whole)
