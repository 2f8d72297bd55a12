"""`tallytree report`, and the page that `release` leaves beside its files: whatever happens to it, nothing is lost."""

import json
import os

import pytest

import tallytree as tt
from tallytree.command import make
from tallytree.publish.folder import REPORT, put_report
from tallytree.publish.release import table_layout
from tests.publish.report.worlds import released, squares

SPEC = """\
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "home"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 1
ledger = false

[release]
intervals = "guaranteed"

[report]
groups = "homes"
entities = "people"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nX,a\nX,b\nY,c\n")
    rows = [f"{home},{'abc'[home % 3]}" for home in range(90) for _ in range(home % 4 + 1)]
    (tmp_path / "people.csv").write_text("\n".join(["home,county", *rows]) + "\n")
    (tmp_path / "release.toml").write_text(SPEC)
    return tmp_path


def test_a_release_has_a_page_unless_it_is_refused(typed, folder):
    assert f"Look at it: {os.path.join('out', REPORT)}" in typed("release", "release.toml", "--out", "out")
    html = (folder / "out" / REPORT).read_text(encoding="utf-8")
    assert "How many homes there are of each size" in html
    made = tt.Release.load(folder / "out")
    assert made.release_id in html
    assert (made.about.groups, made.about.entities) == ("homes", "people")
    found = tt.verify(folder / "out")
    assert found.ok
    assert REPORT in [one.place for one in found.assumptions]
    told = typed("release", "release.toml", "--out", "other", "--no-report", "--json")
    assert json.loads(told)["report"] is None
    assert not (folder / "other" / REPORT).exists()
    assert REPORT not in [one.place for one in tt.verify(folder / "other").assumptions]


def test_the_report_of_a_release_in_several_parts_is_made_from_its_upper_levels(typed, folder, monkeypatch):
    monkeypatch.setattr(table_layout, "SMALL", 0)
    monkeypatch.setattr("tallytree.publish.report.release_page.MOST_CELLS", 12)  # three regions above the counties
    typed("release", "release.toml", "--out", "out")
    html = (folder / "out" / REPORT).read_text(encoding="utf-8")
    assert "This page shows the upper levels of a large release" in html
    assert "How many homes there are of each size" in html
    assert tt.verify(folder / "out").ok


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError(), ValueError("defect")])
def test_what_fails_while_the_page_is_written_is_a_warning_and_the_release_is_complete(
    typed, folder, monkeypatch, error
):
    def fail(*_):
        raise error

    monkeypatch.setattr(make, "put_report", fail)
    told = typed("release", "release.toml", "--out", "out")
    assert "warning: out is complete, but its page report.html could not be written" in told
    assert "tallytree report out writes it" in told
    assert tt.verify(folder / "out").ok
    assert sorted(path.name for path in folder.iterdir()) == ["out", "people.csv", "regions.csv", "release.toml"]
    monkeypatch.undo()
    typed("report", "out")
    assert (folder / "out" / REPORT).exists()


def test_a_map_that_is_of_no_use_costs_the_page_and_not_the_release(typed, folder):
    (folder / "release.toml").write_text(f'{SPEC}map = "nowhere.geojson"\n')
    assert "there is no map at" in typed("release", "release.toml", "--out", "out")
    assert tt.verify(folder / "out").ok


def test_the_command_writes_the_page_into_the_directory_or_elsewhere(typed, folder):
    release = released()
    release.save(folder / "out")
    (folder / "areas.geojson").write_text(json.dumps(squares(release)))
    assert "out/report.html" in typed("report", "out", "--map", "areas.geojson", "--groups", "homes")
    html = (folder / "out" / REPORT).read_text(encoding="utf-8")
    assert "Map of total by county" in html
    typed("report", "out", "--out", "page.html")
    assert "Map of total" not in (folder / "page.html").read_text(encoding="utf-8")
    assert tt.verify(folder / "out").ok
    assert "there is no release directory" in typed("report", "nowhere", code=2)
    assert "plural" in typed("report", "out", "--groups", " ", code=2)
    assert "no map at" in typed("report", "out", "--map", "nowhere", code=2)


def test_a_file_of_somebody_else_with_the_pages_name_is_left_alone_and_found(typed, folder):
    release = released()
    release.save(folder / "out")
    (folder / "out" / REPORT).write_text("mine")
    assert "is not a report by tallytree" in typed("report", "out", code=2)
    assert (folder / "out" / REPORT).read_text() == "mine"
    assert not tt.verify(folder / "out").ok
    with pytest.raises(tt.ReleaseError, match="not part of its release"):
        release.save(folder / "out", replace=True)


def test_a_release_with_its_page_can_be_replaced(folder):
    release = released()
    release.save(folder / "out")
    put_report(folder / "out", release.report().encode())
    release.save(folder / "out", replace=True)
    assert not (folder / "out" / REPORT).exists()
    assert tt.verify(folder / "out").ok
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_page_that_is_cut_off_leaves_the_directory_as_it_was(folder, monkeypatch):
    release = released()
    release.save(folder / "out")
    put_report(folder / "out", release.report().encode())
    before = (folder / "out" / REPORT).read_bytes()

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tallytree.publish.folder.os.replace", cut)
    with pytest.raises(KeyboardInterrupt):
        put_report(folder / "out", b"other")
    assert (folder / "out" / REPORT).read_bytes() == before
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_plan_has_a_page_of_what_each_budget_buys(typed, folder):
    (folder / "release.toml").write_text(f'{SPEC}\n[plan]\nprior = "households"\ngroups = 90\n')
    assert "page: plan.html" in typed(
        "plan", "release.toml", "--mechanism", "joint-cumulative", "--report", "plan.html"
    )
    html = (folder / "plan.html").read_text(encoding="utf-8")
    for words in ("Privacy budget ε", "How accurate each level would be", "Goals", "The spec"):
        assert words in html
    goals = "--suggest", "county within 20 at 95%", "--report", "plan.html"
    assert "leave out --suggest" in typed("plan", "release.toml", *goals, code=2)


def test_synthetic_households_have_a_page_of_what_can_be_trusted(typed, folder):
    from tests.synthesis.made_up import made_up

    tt.synthesize(made_up(), budget=tt.Budget(rho="0.5"), method="mwem", options={"rounds": 3, "empty": True}).save(
        folder / "synthetic"
    )
    typed("report", "synthetic")
    html = (folder / "synthetic" / REPORT).read_text(encoding="utf-8")
    assert "Which questions can be trusted" in html
    assert "Household 1" in html
    assert tt.verify(folder / "synthetic").ok
    assert "no map" in typed("report", "synthetic", "--map", "x", code=2)
    (folder / "synthetic" / "answers.parquet").unlink()
    assert "cannot write the report of synthetic" in typed("report", "synthetic", code=2)
