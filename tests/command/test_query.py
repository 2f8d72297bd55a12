"""`tallytree query` as a user types it: what is shown, in 80 columns, and the exit codes."""

import json
import shutil
import sys
import warnings
from dataclasses import replace

import pytest

import tallytree.command.main
from tallytree import Budget, Release, one_entity, release
from tallytree.publish.release.queries import Query
from tests.oracles.example import made_up
from tests.publish.release.test_answers import nearly_empty, without_noise
from tests.publish.release.test_categories import group_sizes


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query")
    options = {"budget": Budget(epsilon=1), "unit": one_entity()}
    release(made_up(11, public_totals=False), **options).save(folder / "release")
    release(made_up(11, public_totals=True), intervals="none", **options).save(folder / "older")
    lists = {"mechanism": "coc-matching", "options": {"methods": ["sorted-sizes"] * 3}}
    release(made_up(11, public_totals=True), **lists, **options).save(folder / "lists")
    release(made_up(11, public_totals=True), mechanism="pgsr-chain", **options).save(folder / "chain")
    return folder


@pytest.fixture
def query(saved, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.chdir(saved)
    monkeypatch.setenv("COLUMNS", "80")

    def query(*arguments, of="release", code=0):
        monkeypatch.setattr(sys, "argv", ["tallytree", "query", of, *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        assert stop.value.code == code, shown
        text = shown.out + shown.err
        narrow = all(len(line) <= 80 for line in text.splitlines())
        assert narrow or {"--csv", "--json"} & set(map(str, arguments)), text
        return shown.out if "--json" in arguments else text

    return query


def words(text):
    return " ".join(text.split())


def test_a_sum_shows_both_values_and_both_intervals(query, saved):
    made = Release.load(saved / "release")
    text = words(query("--region", "C", "--size", ">=4", "--no-typical"))
    answer = made.estimate("C", ">=4", typical=False)
    assert text.startswith("Groups of size 4 or more in C released")
    assert f"released {answer.shown(answer.released)} from the published counts" in text
    assert f"unbiased {answer.shown(answer.unbiased)} straight from the measurements" in text
    assert text.endswith(f"guaranteed {answer.between(answer.guaranteed)} at least 95 %, for any value of the truth")
    assert "typical" not in text
    assert "about 95 %, for data like the released" in words(query("--region", "C", "--size", ">=4"))


def test_shares_means_ratios_and_differences_are_shown(query):
    share = words(query("--region", "C", "--size", "3-5", "--share"))
    assert share.startswith("Share of sizes 3 to 5 among the groups in C released")
    assert "measured" in share
    assert " % … " in share
    assert "so the mean is truncated at 6" in words(query("--mean", "--no-typical"))
    ratio = words(query("--region", "A", "--ratio-to", "C", "--no-typical", "--confidence", "0.9"))
    assert ratio.startswith("Ratio of groups in A to groups in C released")
    assert "at least 90 %" in ratio
    difference = words(query("--region", "1", "--region", "2", "--difference-to", "A", "--no-typical"))
    assert difference.startswith("Groups in 1 and 2, minus groups in A released 0")
    assert "guaranteed 0 … 0 known exactly" in difference


def test_every_region_of_a_level_has_a_row(query):
    text = query("--level", "county", "--size", ">=2")
    assert text.startswith("Groups of size 2 or more, by county")
    rows = [line.split() for line in text.splitlines()[2:10]]
    assert rows[0] == ["county", "released", "unbiased", "interval", "kind"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3", "4", "5", "6", "DC"]
    assert "separately for each row" in text
    inside = json.loads(query("--level", "county", "--region", "C", "--json", "--no-typical"))
    assert [row["regions"] for row in inside] == [["4"], ["5"], ["6"]]


def test_bands_are_shown_size_by_size(query, saved):
    text = words(query("--region", "C", "--simultaneous"))
    bands = Release.load(saved / "release").bands("C").to_pylist()
    assert f"6 or more {bands[-1]['count']} {bands[-1]['lower']} … {bands[-1]['upper']}" in text
    assert "hold jointly for any value of the truth." in text
    rows = json.loads(query("--level", "state", "--size", "1,6", "--simultaneous", "--json"))
    assert [(row["region"], row["size"]) for row in rows[:3]] == [("A", 1), ("A", 6), ("B", 1)]


def test_json_holds_everything(query, saved):
    value = json.loads(query("--region", "C", "--size", ">=4", "--json"))
    made = Release.load(saved / "release").estimate("C", ">=4", typical=False)
    assert value["released"] == made.released
    assert value["unbiased"] == made.unbiased
    assert tuple(value["guaranteed"]) == made.guaranteed
    assert value["typical"][0] <= value["released"] <= value["typical"][1]
    assert (value["confidence"], value["kind"], value["regions"]) == (0.95, "sum", ["C"])


def test_releases_without_intervals_can_be_asked_too(query):
    text = words(query("--region", "A", of="older"))
    assert "known exactly" in text
    assert "The public number of groups there is" in text
    assert "guaranteed" in query("--region", "A", "--size", 0, "--no-typical", of="older")


@pytest.mark.parametrize(
    "arguments", [["--size", 1], ["--size", 1, "--share"], ["--mean"], ["--median"], ["--gini"], ["--ratio-to", "C"]]
)
def test_lists_bound_every_kind(query, arguments):
    text = words(query("--region", "A", *arguments, "--no-typical", of="lists"))
    assert "guaranteed" in text
    assert "unbiased" not in text
    assert "hold jointly" in words(query("--region", "A", "--simultaneous", of="lists"))


STATISTICS = [
    (["--median"], Query("median"), "Median size of the groups"),
    (["--quantile", "0.9"], Query("quantile", q="0.9"), "90 % quantile of the sizes of the groups"),
    (["--quantile", "0"], Query("quantile", q="0"), "0 % quantile of the sizes of the groups"),
    (["--gini"], Query("gini"), "Gini coefficient of the sizes of the groups"),
    (["--mean"], Query("mean"), "Mean size of the groups"),
]


@pytest.mark.parametrize(("arguments", "asked", "title"), STATISTICS)
def test_statistics_of_sizes_are_shown_as_they_are_in_python(query, saved, arguments, asked, title):
    made, how = Release.load(saved / "release"), {"typical": False}
    answer = made.ask(replace(asked, regions="C"), **how)
    text = words(query("--region", "C", *arguments, "--no-typical"))
    assert text.startswith(f"{title} in C released {answer.shown(answer.released)} from the published counts")
    assert f"guaranteed {answer.between(answer.guaranteed)} at least 95 %, for any value of the " in text
    assert json.loads(query("--region", "C", *arguments, "--no-typical", "--json")) == answer.to_json()
    by_level = made.ask_each(asked, level="county", **how)
    listed = json.loads(query("--level", "county", *arguments, "--no-typical", "--json"))
    assert listed == [one.to_json() for one in by_level]
    lines = query("--level", "county", *arguments, "--no-typical", "--csv").splitlines()
    columns = lines[0].split(",")
    for line, one in zip(lines[1:], by_level, strict=True):
        row = dict(zip(columns, line.split(","), strict=False))
        assert (row["kind"], float(row["released"])) == (asked.kind, one.released)
        assert (float(row["lower"]), float(row["upper"])) == one.guaranteed
    assert f"{title}, by county" in query("--level", "county", *arguments, "--no-typical")


def test_an_undefined_statistic_is_null_in_json_and_empty_in_csv(query, saved):
    without_noise(nearly_empty(public=False)).save(saved / "nothing")
    found = json.loads(query("--region", "void", "--median", "--no-typical", "--json", of="nothing"))
    assert found["released"] is None
    assert found["guaranteed"] == [1, 5]
    assert "The released number of groups is zero, so there is no released value." in found["notes"]
    csv = query("--region", "void", "--median", "--no-typical", "--csv", of="nothing").splitlines()
    assert csv[1].startswith("void,void,median,,,1,5,")
    assert "released undefined" in words(query("--region", "void", "--gini", "--no-typical", of="nothing"))


def test_a_wrong_quantile_is_refused_before_anything_is_read(query):
    for wrong in ("1.5", "-0.1", "nine"):
        text = words(query("--quantile", wrong, of="nowhere", code=2))
        assert f"the quantile is '{wrong}'; expected a number from 0 to 1, such as 0.9" in text


def test_where_there_is_no_guarantee_the_reason_is_shown(query):
    text = words(query("--region", "A", "--size", 1, of="chain"))
    assert "Guaranteed intervals need noisy counts, at_least counts or sorted sizes" in text
    assert "typical" in text
    assert "no bands: Guaranteed intervals need" in query("--region", "A", "--simultaneous", of="chain", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--region", "Totall"], "there is no region 'Totall'; did you mean total?"),
        (["--size", "9"], "there is no size 9; this release counts the sizes 1 to 6"),
        (["--size", "0"], "this release has no size 0: the list of groups is private"),
        (["--size", "5-3"], "the sum is empty"),
        (["--size", "big"], "is not a list of sizes"),
        (["--share"], "the share of all sizes is always 1"),
        (["--mean", "--size", "2"], "a mean is over all sizes"),
        (["--mean", "--share"], "give only one of"),
        (["--median", "--quantile", "0"], "give only one of"),
        (["--median", "--size", "2"], "a median is over all sizes"),
        (["--mean", "--simultaneous"], "give only one of"),
        (["--level", "town"], "there is no level 'town'"),
        (["--ratio-to", "nowhere"], "there is no region 'nowhere'"),
        (["--confidence", "95"], "expected a number from 0.5 to 0.9999"),
    ],
)
def test_bad_questions_are_answered_clearly(query, arguments, message):
    assert message in words(query(*arguments, code=2))


def test_an_unbounded_ratio_is_an_answer_and_not_an_error(query, saved):
    without_noise(nearly_empty(public=False)).save(saved / "unbounded")
    text = words(query("--region", "full", "--ratio-to", "void", "--size", 2, of="unbounded"))
    assert "guaranteed 0 … ∞ unbounded" in text
    assert "The denominator may be zero" in text


def test_what_is_no_release_or_lacks_its_measurements_is_said(query, saved):
    assert "is not a release of counts" in words(query(of="nowhere", code=2))
    bare = shutil.copytree(saved / "release", saved / "bare")
    (bare / "measurements.parquet").unlink()
    assert "measurements.parquet is missing" in words(query(of="bare", code=2))


# -------------------------------------------------------------------- categories


@pytest.fixture(scope="module")
def by_tenure(saved):
    options = {"budget": Budget(epsilon=1), "unit": one_entity()}
    release(group_sizes(groups=None), **options).save(saved / "tenure")
    return saved / "tenure"


def test_one_category_is_asked_about_by_its_value(query, by_tenure):
    made = Release.load(by_tenure)
    text = words(query("--region", "x", "--size", ">=2", "--by", "tenure=rented", "--no-typical", of="tenure"))
    answer = made.estimate("x", ">=2", by={"tenure": "rented"}, typical=False)
    assert text.startswith(f"Groups of size 2 or more in x with tenure rented released {answer.shown(answer.released)}")
    found = json.loads(query("--region", "x", "--by", "tenure=rented", "--no-typical", "--json", of="tenure"))
    assert (found["regions"], found["by"]) == (["x"], {"tenure": "rented"})
    csv = query("--level", "county", "--by", "tenure=rented", "--no-typical", "--csv", of="tenure").splitlines()
    assert csv[0].startswith("region,name,tenure,kind,released")
    assert [line.split(",")[2] for line in csv[1:]] == ["rented"] * 4


def test_every_value_of_a_category_is_a_row_and_their_sum_is_the_last(query, by_tenure):
    rows = json.loads(query("--size", "1", "--by", "tenure", "--no-typical", "--json", of="tenure"))
    assert [row["by"]["tenure"] for row in rows] == ["owned", "rented", "all"]
    assert rows[0]["released"] + rows[1]["released"] == rows[2]["released"]
    text = query("--size", "1", "--by", "tenure", "--no-typical", of="tenure")
    assert text.startswith("Groups of size 1 in total, by tenure")


def test_the_share_of_a_category_is_asked_for(query, by_tenure):
    text = words(query("--level", "state", "--share-of", "tenure=rented", "--no-typical", of="tenure"))
    assert text.startswith("Share of tenure rented among the groups, by state")
    band = words(query("--region", "A", "--by", "tenure=owned", "--simultaneous", of="tenure"))
    assert band.startswith("Groups in A with tenure owned size groups guaranteed")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "tenur=rented"], "there is no category 'tenur'; did you mean 'tenure'?"),
        (["--by", "tenure=let"], "tenure has no value 'let'; there are owned, rented, all"),
        (["--by", "tenure=rented", "--by", "tenure=owned"], "--by names 'tenure' twice"),
        (["--by", "=rented"], "write a category and its value, as in tenure=rented"),
        (
            ["--by", "tenure", "--level", "state"],
            "asks for each value of a category and cannot be combined with --level",
        ),
        (["--by", "origin"], "there is no category 'origin'"),
        (["--share-of", "tenure=rented", "--share"], "give only one of"),
        (["--share-of", "tenure"], "--share-of 'tenure' is invalid"),
    ],
)
def test_what_is_wrong_with_a_category_is_said(query, by_tenure, arguments, message):
    assert message in words(query(*arguments, of="tenure", code=2))
    assert "has no categories" in words(query("--by", "tenure=rented", code=2))
