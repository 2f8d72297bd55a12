"""One recommended interval for each number: files, answers and pages say the same, and it holds as often as it says."""

import json
import math
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

import tallytree as tt
import tallytree.command.main
from tallytree.tables.group_sizes import GroupSizes, Sealed
from tests.publish.forging import sign_again

LARGEST, CHANCE = 8, 1e-6
STATES = {"A": 6, "B": 9, "C": 12}
COUNTIES = [(state, f"{state}{number}") for state, count in STATES.items() for number in range(count)]


def tree():
    columns = {"state": [one[0] for one in COUNTIES], "county": [one[1] for one in COUNTIES]}
    return tt.Hierarchy.from_levels(columns, ["state", "county"])


def true_counts(seed, mean=40.0, shape=0.45):
    """Household sizes that fall off, with more households in later counties."""
    expected = mean * np.linspace(0.3, 1.7, len(COUNTIES))[:, None] * shape ** np.arange(LARGEST)
    return np.random.default_rng(seed).poisson(expected)


def private(counts):
    households = np.repeat(
        np.arange(counts.sum()), np.repeat(np.tile(np.arange(1, LARGEST + 1), len(counts)), counts.ravel())
    )
    sizes = np.tile(np.arange(1, LARGEST + 1), len(counts))
    county = np.repeat(np.arange(len(counts)), (counts * np.arange(1, LARGEST + 1)).sum(axis=1))
    assert len(households) == len(county) == (counts.ravel() * sizes).sum()
    table = pa.table({"household": households, "county": np.array([one[1] for one in COUNTIES])[county]})
    return tt.read(table, group="household", region="county", hierarchy=tree(), max_size=LARGEST)


def release(data, epsilon, **how):
    return tt.release(data, budget=tt.Budget(epsilon=epsilon), unit=tt.one_entity(), **how)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A release whose counties have typical intervals that are much shorter, and whose whole has not."""
    folder = tmp_path_factory.mktemp("recommended") / "release"
    release(private(true_counts(1)), "0.3").save(folder)
    return folder


@pytest.fixture
def typed(monkeypatch, capsys):
    def typed(*words):
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["tallytree", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        assert not stop.value.code
        return capsys.readouterr().out

    return typed


def stated(folder):
    return json.loads((folder / "privacy.json").read_text())["intervals"]


def columns(kind):
    return ("lower", "upper") if kind == "guaranteed" else ("typical_lower", "typical_upper")


def test_the_kind_with_the_smaller_reach_is_recommended_on_each_level_and_the_reach_is_that_of_the_file(saved):
    table, found = pq.read_table(saved / "counts.parquet"), stated(saved)
    assert set(found["recommended"]["counts"].values()) == {"guaranteed", "typical"}
    for level, kind in found["recommended"]["counts"].items():
        rows = table.filter(pa.compute.equal(table["level"], level))
        count = rows["count"].to_numpy()
        reach = {}
        for one in ("guaranteed", "typical"):
            lower, upper = (rows[name].to_numpy() for name in columns(one))
            distances = np.sort(np.maximum(count - lower, upper - count))
            reach[one] = distances[math.ceil(0.95 * len(distances)) - 1]
        assert found["reach"]["counts"][level] == reach
        assert kind == ("typical" if reach["typical"] <= 0.75 * reach["guaranteed"] else "guaranteed")
    described = table.schema.field("lower").metadata[b"description"].decode()
    assert "Recommended on the levels: 'total'" in described
    assert tt.verify(saved).ok


@pytest.mark.parametrize("change", ["reach", "recommended"])
def test_a_statement_that_recommends_the_other_kind_does_not_verify(saved, tmp_path, change):
    import shutil

    folder = shutil.copytree(saved, tmp_path / "changed")
    content = json.loads((folder / "privacy.json").read_text())
    if change == "reach":
        content["intervals"]["reach"]["counts"]["county"]["guaranteed"] = 0
    else:
        content["intervals"]["recommended"]["counts"]["county"] = "guaranteed"
    (folder / "privacy.json").write_text(json.dumps(content))
    sign_again(folder)
    faults = " ".join(tt.verify(folder).faults)
    assert "reach" in faults or "recommended" in faults


def test_answers_queries_and_the_report_show_the_recommended_interval(saved, typed):
    made, found = tt.Release.load(saved), stated(saved)["recommended"]["counts"]
    table = made.table().to_pylist()
    for level, region in (("total", "total"), ("county", "C11")):
        kind = found[level]
        row = next(row for row in table if row["region"] == region and row["size"] == 1)
        lower, upper = (row[name] for name in columns(kind))
        answer = made.estimate(region, 1)
        assert (answer.recommended, answer.interval) == (kind, (lower, upper))
        assert f"from {lower:,} to {upper:,}" in answer.sentence
        shown = " ".join(typed("query", saved, "--region", region, "--size", "1").split())
        assert f"{kind} {lower:,} … {upper:,} recommended" in shown
    rows = typed("query", saved, "--level", "county", "--size", "1")
    assert all(line.split()[-1] == found["county"] for line in rows.splitlines() if re.match(r"\s*[ABC]\d", line))
    page = made.report().html
    row = next(row for row in table if row["region"] == "total" and row["size"] == 1)
    lower, upper = (row[name] for name in columns(found["total"]))
    assert f"{lower:,} to {upper:,}" in page
    assert f"± {stated(saved)['reach']['counts']['county'][found['county']]:,}" in page


def test_no_page_calls_a_95_percent_interval_certain_or_typical_intervals_shorter(saved):
    from pathlib import Path

    page = tt.Release.load(saved).report().html
    root = Path(__file__).parents[3]
    texts = {"the report": page, **{str(path): path.read_text() for path in (root / "docs").rglob("*.md")}}
    for name, text in texts.items():
        for wrong in (r"beyond doubt", r"[Tt]ypical errors are smaller", r"typical ones are smaller"):
            assert not re.search(wrong, text), (name, wrong)


@pytest.mark.parametrize("epsilon", ["0.3", "2"])
@pytest.mark.parametrize("runs", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_recommended_intervals_hold_as_often_as_they_say(epsilon, runs):
    held = {level: [] for level in tree().levels}
    for run in range(runs):
        counts = true_counts(run)
        made = release(private(counts), epsilon)
        truth, regions = tree().aggregate(counts), tree()
        for level, name in enumerate(regions.levels):
            rows = regions.level_slice(level)
            kind = made.error_bars.recommended("counts", name)
            ends = made.error_bars.guaranteed if kind == "guaranteed" else made.error_bars.typical
            held[name].append(np.mean((ends.lower[rows] <= truth[rows]) & (truth[rows] <= ends.upper[rows])))
    for name, regions_of in zip(held, (1, len(STATES), len(COUNTIES)), strict=True):
        number = regions_of * runs  # counts of one region may depend on each other
        assert np.mean(held[name]) >= binom.ppf(CHANCE, number, 0.94) / number, (name, np.mean(held[name]))


# -------------------------------------------------------------------- intervals of no width


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "50"])
@pytest.mark.parametrize("mechanism", ["tallytree", "joint-cumulative", "pgsr-hierarchical-dp"])
def test_no_published_interval_is_a_single_number(tmp_path, epsilon, mechanism):
    made = release(private(true_counts(3, mean=4.0)), epsilon, mechanism=mechanism)
    made.save(tmp_path / "release")
    for name in ("counts.parquet", "entities.parquet"):
        table = pq.read_table(tmp_path / "release" / name)
        for lower, upper in (columns("guaranteed"), columns("typical")):
            assert pa.compute.all(pa.compute.less(table[lower], table[upper])).as_py()


def test_an_interval_of_a_public_total_of_0_is_a_single_number():
    regions = tt.Hierarchy.from_levels({"state": ["A", "A"], "county": ["1", "2"]}, ["state", "county"])
    data = GroupSizes(
        hierarchy=regions,
        max_size=3,
        counts=Sealed(np.array([[1, 1, 1, 0], [0, 0, 0, 0]])),
        leaf_totals=np.array([3, 0]),
    )
    made = release(data, 1)
    for row in made.table().to_pylist():
        if row["region"] == "2":
            assert (row["lower"], row["count"], row["upper"]) == (0, 0, 0)
        else:
            assert row["lower"] < row["upper"]


def test_answers_are_single_numbers_only_where_they_are_known_exactly():
    made = release(private(true_counts(3, mean=4.0)), "0.001")
    for kind in ("sum", "share", "mean"):
        for answer in made.ask_each(tt.Query(kind, sizes=None if kind == "mean" else ">=5"), level="county"):
            assert answer.guaranteed[0] < answer.guaranteed[1], answer
            assert "known exactly" not in answer.sentence
    assert made.difference("A1", "A2", "3").guaranteed[0] < made.difference("A1", "A2", "3").guaranteed[1]
