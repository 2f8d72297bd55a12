"""Areas on the command line: `query --regions`, and `[areas]` in a spec."""

import csv
import io
import json
import sys

import pytest

import tallytree.command.main
from tallytree import Budget, Query, Release, one_entity, release
from tests.oracles.example import made_up

AREAS = "area,region\nNorth,1\nNorth,4\n=1+1,C\nState A,1\nState A,2\n"
SPEC = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
name = "people"
group = "household"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 1
ledger = false

[release]
intervals = "guaranteed"

[areas.districts]
file = "districts.csv"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("areas")
    release(made_up(11, public_totals=False), budget=Budget(epsilon=1), unit=one_entity()).save(folder / "release")
    (folder / "areas.csv").write_text(AREAS)
    (folder / "regions.csv").write_text("state,county\nA,1\nA,2\nB,3\n")
    (folder / "districts.csv").write_text("area,region\nEast,1\nEast,3\nWest,A\n")
    (folder / "people.csv").write_text(
        "household,county\n" + "".join(f"{n // 2},{n // 2 % 3 + 1}\n" for n in range(300))
    )
    (folder / "release.toml").write_text(SPEC)
    return folder


@pytest.fixture
def printed(folder, monkeypatch, capsys):
    """What a command prints, line by line."""

    def printed(*words):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "argv", ["tallytree", *words])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        assert not stop.value.code, shown
        return shown.out

    return printed


def test_every_area_has_a_row_with_the_intervals_of_python(printed, folder):
    asked = ("query", "release", "--regions", "areas.csv", "--size", ">=3", "--no-typical")
    made = Release.load(folder / "release")
    answers = made.ask_each(Query(sizes=">=3"), areas=folder / "areas.csv", typical=False)
    text = printed(*asked)
    assert text.startswith("Groups of size 3 or more, by area\n")
    for answer in answers:
        assert " ".join([answer.area, answer.shown(answer.released)]) in " ".join(text.split())
        assert answer.between(answer.guaranteed) in text
    values = json.loads(printed(*asked, "--json"))
    assert [(one["area"], tuple(one["guaranteed"])) for one in values] == [
        (answer.area, answer.guaranteed) for answer in answers
    ]
    rows = list(csv.DictReader(io.StringIO(printed(*asked, "--csv"))))
    assert [row["area"] for row in rows] == ["North", "'=1+1", "State A"]
    assert [(int(row["lower"]), int(row["upper"])) for row in rows] == [answer.guaranteed for answer in answers]
    assert "region" not in rows[0]


def test_shares_means_ratios_and_bands_of_areas_are_shown(printed, folder):
    asked = ("query", "release", "--regions", "areas.csv", "--no-typical")
    assert printed(*asked, "--mean").startswith("Mean size of the groups, by area\n")
    assert printed(*asked, "--share", "--size", "1").startswith("Share of size 1 among the groups, by area\n")
    assert "ratio" in printed(*asked, "--ratio-to", "B", "--csv")
    text = printed(*asked, "--simultaneous")
    assert "Groups in the area State A" in text
    assert "the intervals of all sizes of an area hold jointly" in " ".join(text.split())
    rows = json.loads(printed(*asked, "--simultaneous", "--size", "1,2", "--json"))
    assert [(row["area"], row["size"]) for row in rows[:3]] == [("North", 1), ("North", 2), ("=1+1", 1)]
    band = Release.load(folder / "release").bands("A", "1,2").to_pylist()
    assert [(row["lower"], row["upper"]) for row in rows[4:]] == [(row["lower"], row["upper"]) for row in band]


def test_what_cannot_be_asked_of_areas_is_said(typed, folder):
    (folder / "wrong.csv").write_text("area,region\nNorth,Totall\n")
    assert "there is no region 'Totall'; did you mean total?" in typed(
        "query", "release", "--regions", "wrong.csv", code=2
    )
    assert "leave out --level and --region" in typed(
        "query", "release", "--regions", "areas.csv", "--level", "county", code=2
    )
    (folder / "twice.csv").write_text("area,region\nNorth,1\nNorth,A\n")
    assert "has the leaf '1' more than once; it counts once" in typed(
        "query", "release", "--regions", "twice.csv", "--no-typical"
    )


def test_a_spec_publishes_areas(typed, folder):
    assert "can be released" in typed("validate", "release.toml")
    typed("release", "release.toml", "--out", "out")
    typed("verify", "out")
    with (folder / "out" / "areas.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["kind"], row["area"], row["size"]) for row in rows[3:5]] == [
        ("districts", "East", "4"),
        ("districts", "West", "1"),
    ]
    made = Release.load(folder / "out")
    assert sum(int(row["count"]) for row in rows if row["area"] == "West") == made.estimate("A", typical=False).released


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('file = "people.csv"', "[areas.districts] file is a file of the microdata"),
        ('file = "nothing.csv"', "there is no list of areas 'districts' at"),
        ('fiel = "districts.csv"', "[areas.districts] unknown key 'fiel'; did you mean 'file'?"),
        ('file = "wrong.csv"', "there is no region 'Totall'"),
    ],
)
def test_bad_areas_in_a_spec_are_refused_and_nothing_is_spent(typed, folder, change, message):
    (folder / "wrong.csv").write_text("area,region\nNorth,Totall\n")
    (folder / "bad.toml").write_text(SPEC.replace('file = "districts.csv"', change))
    assert message in typed("validate", "bad.toml", code=2)
    told = typed("release", "bad.toml", "--out", "refused", code=2)
    assert message in told
    assert not (folder / "refused").exists()
    assert not (folder / "refused.partial").exists()
