"""`tallytree plan` as a user runs it: without the microdata, in 80 columns, with goals, pictures and plain mistakes."""

import json
import re
import sys

import pytest

import tallytree.command.main
import tallytree.planning.grid
from tallytree import SpecError
from tallytree.command.release_spec import ReleaseSpec
from tallytree.planning.report import AUTO_CANDIDATES

SPEC = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "household"
region = "county"
max_size = 5

[privacy]
unit = "one_entity"
epsilon = 1

[plan]
prior = "households"
groups = 3000
"""
BANDS = "[release.options]\nbands = [{ to = 2, shares = [1, 1, 3] }, { shares = [4, 0, 1] }]"
LEAVES = [("A", "01"), ("A", "02"), ("B", "03"), ("B", "04"), ("B", "05")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Everything but the microdata: a plan must not miss them."""
    rows = "".join(f"{state},{county},{10 * at}\n" for at, (state, county) in enumerate(LEAVES))
    (tmp_path / "regions.csv").write_text("state,county,people\n" + rows)
    (tmp_path / "release.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["tallytree", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        assert (stop.value.code or 0) == code, shown.out + shown.err
        return shown.out + shown.err

    return run


def test_a_plan_is_made_without_the_microdata_and_fits_80_columns(folder, run):
    assert not (folder / "people.csv").exists()
    out = run("plan", "release.toml", "--quiet", "--mechanism", "joint-cumulative", "--mechanism", "bottom-up")
    assert out == ""
    before = sorted(folder.iterdir())
    out = run("plan", "release.toml", "--epsilon", "1", "--epsilon", "0.5")
    assert sorted(folder.iterdir()) == before
    assert all(len(line) <= 80 for line in out.splitlines()), out
    for words in (
        "What ε = 1 buys",
        "What ε = 0.5 buys",
        "upper  total 57.1 %",
        "joint-cumulative",
        "Nothing was spent",
    ):
        assert words in out
    assert out.count("*") >= 2 * 3 * 3


def test_own_shares_are_shown_beside_the_usual_splits(folder, run):
    (folder / "release.toml").write_text(SPEC + "[release]\nshares = { total = 1, state = 1, county = 8 }\n")
    found = json.loads(run("plan", "release.toml", "--json", "--mechanism", "joint-cumulative"))
    shares = {row["split"]: row["shares"] for row in found["predictions"]}
    assert list(shares) == ["as given", "upper", "balanced", "leaves"]
    assert shares["as given"] == ["1/10", "1/10", "4/5"]


def test_a_goal_gets_shares_that_a_spec_can_take(folder, run):
    out = run("plan", "release.toml", "--suggest", "county within 12 at 95%", "--epsilon", "1")
    assert "ε = 1 is enough for county within ± 12 at 95 %" in out
    line = next(line.strip() for line in out.splitlines() if line.strip().startswith("shares = "))
    (folder / "release.toml").write_text(f"{SPEC}\n[release]\n{line}\n")
    assert set(ReleaseSpec.load("release.toml").release.shares) == {"total", "state", "county"}
    out = run("plan", "release.toml", "--suggest", "county within 1 at 99%")
    assert "ε = 1 is too small" in out
    assert "would do" in out
    found = json.loads(run("plan", "release.toml", "--json", "--suggest", "county within 1 at 99%"))
    assert found[0]["enough"] is False
    assert found[0]["half_widths"]["county"] <= 1


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_picture_is_drawn(folder, run, ending):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    out = run("plan", "release.toml", "--mechanism", "joint-cumulative", "--plot", f"plan.{ending}")
    assert f"picture: plan.{ending}" in out
    start = (folder / f"plan.{ending}").read_bytes()[:300]
    assert {"png": b"PNG", "svg": b"<svg", "html": b"<html"}[ending] in start


def page_data(path):
    """What the page of a plan embeds for its script."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)[1])


@pytest.mark.parametrize("named", [True, False], ids=["named", "auto"])
def test_a_page_has_the_spec_as_it_was_planned(folder, run, monkeypatch, named):
    monkeypatch.setitem(tallytree.planning.grid.EFFORT, "bounds", (2, 2))
    (folder / "release.toml").write_text(SPEC + '[release]\npriority = "leaves"\n')
    words = ["--mechanism", "joint-cumulative"] if named else []
    out = run("plan", "release.toml", "--report", "plan.html", "--epsilon", "1.5", "--groups", "4000", *words)
    assert "page: plan.html" in out
    data = page_data(folder / "plan.html")
    assert data["own"] == {"amount": 1.5, "split": "leaves", "size": 5}
    assert data["spec"]["privacy"] == {"unit": "one_entity", "epsilon": "1.5"}
    assert data["spec"]["plan"] == {"prior": "households", "groups": 4000}
    assert data["spec"]["release"] == {"priority": "leaves"}
    assert data["mechanism"] == "joint-cumulative" if named else data["mechanism"] in AUTO_CANDIDATES


def test_a_public_list_of_groups_gives_the_totals(folder, run):
    groups = "".join(f"{number},{LEAVES[number % 4][1]}\n" for number in range(300))
    (folder / "groups.csv").write_text("household,county\n" + groups)
    spec = SPEC.replace(
        'region = "county"', 'region = "county"\ngroups = "groups.csv"\ngroups_are_public = true'
    ).replace("groups = 3000\n", "")
    (folder / "release.toml").write_text(spec)
    loaded = ReleaseSpec.load("release.toml")
    tree, totals = loaded.public_regions()
    assert dict(zip(tree.ids[3:], totals.tolist(), strict=True)) == {"01": 75, "02": 75, "03": 75, "04": 75, "05": 0}
    assert "joint-counts" in run("plan", "release.toml")
    # The regions, too, may come from that list; then 05 is not known of.
    (folder / "release.toml").write_text(
        spec.replace('[regions]\ntable = "regions.csv"\nlevels = ["state", "county"]\n', "")
    )
    assert ReleaseSpec.load("release.toml").public_regions()[0].leaf_count == 4
    (folder / "groups.csv").write_text("household,county\n1,01\n1,01\n2,77\n")
    (folder / "release.toml").write_text(spec)
    out = run("plan", "release.toml", code=2)
    assert "77" not in out
    assert "1 " in out


def test_groups_are_spread_by_a_public_column(folder):
    (folder / "release.toml").write_text(SPEC + 'spread = "people"\n')
    loaded = ReleaseSpec.load("release.toml")
    tree, _ = loaded.public_regions()
    fitted = loaded.prior(tree).fitted(tree, first_size=1, max_size=5)
    assert fitted.totals == pytest.approx([0, 300, 600, 900, 1200])
    for change, message in (
        (('spread = "people"', 'spread = "persons"'), r"is not a column of the \[regions\] table; it has state"),
        (('spread = "people"', 'spread = "state"'), "'state' .* holds 'A'; expected numbers"),
    ):
        (folder / "release.toml").write_text((SPEC + 'spread = "people"\n').replace(*change))
        with pytest.raises(SpecError, match=message):
            ReleaseSpec.load("release.toml").prior(tree)


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (("groups = 3000\n", ""), [], "groups = N"),
        (('[plan]\nprior = "households"\ngroups = 3000\n', ""), [], "no prior given; set [plan] prior"),
        (('"households"', '"housholds"'), [], "neither a shape"),
        (("groups = 3000", "group = 3000"), [], "did you mean 'groups'?"),
        (("groups = 3000", "groups = 0"), [], "above 0"),
        (("[plan]", '[release]\npriority = "lower"\n[plan]'), [], "'upper', 'balanced' or 'leaves'"),
        (("[plan]", '[release]\npriority = "upper"\nshares = [1, 1, 1]\n[plan]'), [], "give only one of them"),
        (("[plan]", f'[release]\npriority = "upper"\n{BANDS}\n[plan]'), [], "leave out shares and priority"),
        (("[plan]", f"[release]\nshares = [1, 1, 1]\n{BANDS}\n[plan]"), [], "leave out shares and priority"),
        (("[plan]", f"{BANDS}\n[plan]"), ["--suggest", "county within 5 at 95%"], "size bands already set shares"),
        (('table = "regions.csv"', 'table = "nowhere.csv"'), [], "no region table"),
        (("", ""), ["--suggest", "counties within 5 at 95%"], "did you mean 'county'?"),
        (("", ""), ["--plot", "plan.gif"], "not as plan.gif"),
        (("", ""), ["--mechanism", "joint"], "unknown mechanism 'joint'"),
        (("", ""), ["--prior", "older.csv"], "neither a shape"),
    ],
)
def test_mistakes_are_told(folder, run, change, words, message):
    old, new = change
    (folder / "release.toml").write_text(SPEC.replace(old, new, 1))
    out = " ".join(run("plan", "release.toml", *words, code=2).split())
    assert message in out


def test_a_plan_for_data_whose_rows_will_be_dropped_says_so(folder, run):
    assert "truncated" not in run("plan", "release.toml")
    (folder / "release.toml").write_text(SPEC.replace("[data]", '[data]\nentity = "person"\nrows_per_entity = 4', 1))
    words = " ".join(run("plan", "release.toml").split())
    assert "describe the data as truncated: at most 4 rows of each entity were kept" in words


def test_a_budget_out_of_range_is_a_mistake(folder, run):
    assert "epsilon" in run("plan", "release.toml", "--epsilon", "-1", code=2)


def test_a_release_takes_the_mechanism_that_the_prior_speaks_for(folder, run):
    people = "".join(f"{number // 2},{LEAVES[number // 2 % 5][1]}\n" for number in range(2000))
    (folder / "people.csv").write_text("household,county\n" + people)
    (folder / "release.toml").write_text(SPEC + '[release]\npriority = "upper"\n')
    assert "mechanism" in run("validate", "release.toml")
    out = run("release", "release.toml", "--out", "made", "--no-ledger")
    assert "ε = 4/7" in out
    run("verify", "made", "--quiet")


def test_a_budget_that_buys_nothing_is_warned_of_in_words(folder, run):
    small = SPEC.replace("groups = 3000", "groups = 40").replace("epsilon = 1", 'epsilon = "0.0001"')
    (folder / "release.toml").write_text(small)
    out = " ".join(run("plan", "release.toml", "--mechanism", "tallytree").split())
    assert re.search(r"level 'county' will be useless with ε = 0.0001: .* reach ± [0-9,]+; [1-5] of 5 regions", out)
    assert "regions with groups will be published as 0" in out
    enough = " ".join(run("plan", "release.toml", "--mechanism", "tallytree", "--epsilon", "20").split())
    assert "useless" not in enough


@pytest.mark.parametrize("prior", [True, False])
def test_validate_warns_of_a_budget_that_buys_nothing_whatever_the_data_are(folder, run, prior):
    text = SPEC.replace("groups = 3000", "groups = 40").replace("epsilon = 1", 'epsilon = "0.0001"')
    (folder / "release.toml").write_text(text if prior else text.split("[plan]")[0])
    told = []
    for household in (3, 60):
        rows = "".join(f"{number},{number % 5 + 1:02d}\n" for number in range(household))
        (folder / "people.csv").write_text("household,county\n" + rows)
        out = run("validate", "release.toml", "--json")
        told.append(json.JSONDecoder().raw_decode(out)[0]["warnings"])
        assert ("'county' will be useless" if prior else "ε = 0.0001 is a small budget") in told[-1][-1]
    if not prior:
        assert told[0] == told[1]
