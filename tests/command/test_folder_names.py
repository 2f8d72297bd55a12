"""Large releases have a folder for each region of the first level, whatever its name is, on every file system."""

import json
import re
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallytree as tt
from tallytree.publish.release import table_layout as partition

LONG = "दादरा और नगर हवेली और दमन और दीव"
STATES = {
    "a long name": [LONG, "Goa"],
    "200 letters": ["区" * 200, "区" * 199 + "域"],
    "upper and lower case": ["new york", "New York", "NEW YORK", "Ohio"],
    "composed and decomposed": [unicodedata.normalize(form, "Åland") for form in ("NFC", "NFD")],
    "reserved": ["CON", "NUL", "con", "dot.", "dot", "space x", "a~1", "a@1", "%41", "A", "..", "COM1.txt"],
}
SPEC = """
[regions]
table = "regions.parquet"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "household"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 1
ledger = "ledger.db"

[release]
intervals = "guaranteed"
"""
LONGEST = 143  # bytes that a name may have on an encrypted disk of some systems; 255 elsewhere
FORBIDDEN = re.compile(r'[<>:"/\\|?*]|[^ -~]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)($|\.)', re.IGNORECASE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(partition, "SMALL", 20)
    return tmp_path


def prepare(folder, typed, states, level="state"):
    """A spec with two counties in each state, and a ledger with an account."""
    counties = [f"{number:03}" for number in range(2 * len(states))]
    table = {level: [state for state in states for _ in range(2)], "county": counties}
    pq.write_table(pa.table(table), folder / "regions.parquet")
    rows = [f"{county}-{group},{county}\n" for county in counties for group in range(5) for _ in range(1 + group % 3)]
    (folder / "people.csv").write_text("household,county\n" + "".join(rows))
    (folder / "release.toml").write_text(SPEC.replace('"state"', json.dumps(level, ensure_ascii=False)))
    typed("ledger", "open", "release.toml", "--epsilon", 1)


def check_names(folder):
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        names = [path.name for path in inner.iterdir()]
        assert len({name.casefold() for name in names}) == len(names)
        assert all(len(name.encode()) <= LONGEST and not FORBIDDEN.search(name) for name in names), names


@pytest.mark.parametrize("kind", STATES)
def test_a_paid_release_is_written_verified_and_queried_whatever_its_regions_are_called(kind, folder, typed):
    prepare(folder, typed, STATES[kind])
    typed("release", "release.toml", "--out", "out")
    check_names(folder / "out")
    assert "All checks passed" in typed("verify", "out")
    made = tt.Release.load(folder / "out")
    assert set(made.hierarchy.names[made.hierarchy.level_slice(1)]) == set(STATES[kind])
    for region, of_region in zip(made.hierarchy.ids, made.counts, strict=True):
        shown = json.loads(typed("query", "out", "--region", region, "--size", ">=1", "--json"))
        assert shown["released"] == of_region.sum()


@pytest.mark.parametrize("level", [LONG, "State", "x" * 300])
def test_levels_are_called_as_the_user_likes_too(level, folder, typed):
    prepare(folder, typed, ["a", "b"], level)
    typed("release", "release.toml", "--out", "out")
    check_names(folder / "out")
    assert "All checks passed" in typed("verify", "out")


def test_a_directory_whose_name_is_too_long_to_be_written_is_refused_before_anything_is_spent(folder, typed):
    prepare(folder, typed, ["a", "b"])
    shown = typed("release", "release.toml", "--out", "o" * 240, code=2)
    assert "File name too long" in shown
    assert "spent nothing" in shown
    (account,) = json.loads(typed("ledger", "show", "ledger.db", "--json"))
    assert account["spendings"] == []
    assert not [path for path in folder.iterdir() if "ooo" in path.name]


def test_a_run_whose_folder_names_could_not_be_written_finishes_from_its_measurements(folder, typed, monkeypatch):
    prepare(folder, typed, STATES["200 letters"])
    with monkeypatch.context() as patch:  # what version 0.3.0 did with such names
        patch.setattr(partition, "folder_names", lambda key, texts: [f"{key}={text * 9}" for text in texts])
        patch.setattr("tallytree.command.make.try_names", lambda *_: None)
        assert "--resume" in typed("release", "release.toml", "--out", "out", code=2)
    typed("release", "release.toml", "--out", "out", "--resume")
    assert "All checks passed" in typed("verify", "out")
    (account,) = json.loads(typed("ledger", "show", "ledger.db", "--json"))
    assert [spending["cost"] for spending in account["spendings"]] == ["1"]
