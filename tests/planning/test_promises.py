"""What `tallytree plan` prints about intervals, compared with what releases publish."""

import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import tallytree as tt
import tallytree.command.main
from tallytree.planning.prior import Prior
from tallytree.planning.report import Alternatives, predict_errors
from tallytree.planning.simulation import Effort, PublicFacts
from tallytree.privacy.neighbours import Neighbours

STATES = {"A": 3, "B": 4, "C": 5}
COUNTIES = [(state, f"{state}{number}") for state, count in STATES.items() for number in range(count)]
LARGEST, GROUPS, CHANCE = 6, 1500, 1e-6
SPEC = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.parquet"
group = "household"
region = "county"
max_size = {largest}

[privacy]
unit = "one_entity"
epsilon = {epsilon}

[plan]
prior = "{prior}"
groups = {groups}
"""


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What the command prints for a prior and a budget."""

    def printed(prior, epsilon, *words):
        rows = "\n".join(",".join(one) for one in COUNTIES)
        (tmp_path / "regions.csv").write_text(f"state,county\n{rows}\n")
        spec = SPEC.format(largest=LARGEST, epsilon=epsilon, prior=prior, groups=GROUPS)
        (tmp_path / "release.toml").write_text(spec)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["tallytree", "plan", "release.toml", *words])
        with pytest.raises(SystemExit):
            tallytree.command.main.main()
        return capsys.readouterr().out

    return printed


def tree():
    columns = {"state": [one[0] for one in COUNTIES], "county": [one[1] for one in COUNTIES]}
    return tt.Hierarchy.from_levels(columns, ["state", "county"])


def microdata(prior, seed):
    """Made-up persons, as many households of each size as the prior expects, give or take."""
    expected = Prior.of(prior, groups=GROUPS).fitted(tree(), first_size=1, max_size=LARGEST, leaf_totals=None)
    counts = np.random.default_rng(seed).poisson(expected.expected(np.arange(len(COUNTIES))))
    rows, household = [], 0
    for (_, county), row in zip(COUNTIES, counts, strict=True):
        for size, count in enumerate(row, start=1):
            for _ in range(count):
                rows += [{"household": household, "county": county}] * size
                household += 1
    table = pa.Table.from_pylist(rows)
    return tt.read(table, group="household", region="county", hierarchy=tree(), max_size=LARGEST)


def shares_within(release, folder, promised):
    """Of the published counts of each level, the part whose recommended interval is within count ± a promise."""
    release.save(folder)
    stated = json.loads((folder / "privacy.json").read_text())["intervals"]
    table = pa.parquet.read_table(folder / "counts.parquet")
    found = {}
    for level, reach in promised.items():
        kind = stated.get("recommended", {}).get("counts", {}).get(level, "guaranteed")
        prefix = "" if kind == "guaranteed" else "typical_"
        rows = table.filter(pa.compute.equal(table["level"], level))
        count, lower, upper = (rows[name].to_numpy() for name in ("count", f"{prefix}lower", f"{prefix}upper"))
        found[level] = np.mean(np.maximum(count - lower, upper - count) <= reach)
    return found


def check(shares, regions):
    """95 % of the counts are within what was promised, but for chance; those of one region may depend on each other."""
    for level, found in shares.items():
        number = regions[level] * len(found)
        assert np.mean(found) >= binom.ppf(CHANCE, number, 0.95) / number, (level, np.mean(found))


@pytest.mark.parametrize("prior", ["households", "heavy-tail", "uniform"])
@pytest.mark.parametrize("runs", [2, pytest.param(67, marks=pytest.mark.slow)])
def test_published_counts_have_intervals_within_what_a_suggestion_printed(printed, tmp_path, prior, runs):
    text = printed(prior, 1, "--suggest", "county within 12 at 95%")
    shares = {level: int(share) for level, share in re.findall(r"(\w+) = (\d+)", text.split("shares")[1])}
    epsilon = re.search(r"ε = (\S+) (?:would do|is enough)", text)[1]
    levels = {"total": 1, "state": len(STATES), "county": len(COUNTIES)}
    promised = {level: int(re.search(rf"{level} .*?± (\d+)", text)[1]) for level in levels} | {"county": 12}
    found = {level: [] for level in levels}
    for data_set in range(3):
        private = microdata(prior, data_set)
        for run in range(runs):
            released = tt.release(private, budget=tt.Budget(epsilon=epsilon), unit=tt.one_entity(), shares=shares)
            for level, share in shares_within(released, tmp_path / f"{data_set}-{run}", promised).items():
                found[level].append(share)
    check(found, levels)


@pytest.mark.parametrize("epsilon", [2, pytest.param("0.3", marks=pytest.mark.slow)])
def test_published_counts_have_intervals_within_the_reach_of_a_plan(printed, tmp_path, epsilon):
    found = json.loads(printed("households", epsilon, "--mechanism", "tallytree", "--json"))["predictions"]
    promised = {one["level"]: one["reach"] for one in found if one["split"] == "balanced"}
    shares = {level: [] for level in promised}
    for run in range(6 if epsilon == 2 else 200):
        private = microdata("households", run % 3)
        released = tt.release(private, budget=tt.Budget(epsilon=epsilon), unit=tt.one_entity(), priority="balanced")
        for level, share in shares_within(released, tmp_path / str(run), promised).items():
            shares[level].append(share)
    check(shares, {"total": 1, "state": len(STATES), "county": len(COUNTIES)})


def test_guaranteed_intervals_of_any_data_are_within_the_half_width_around_unbiased_estimates():
    regions, neighbours = tree(), Neighbours(tt.one_entity(), LARGEST, public_totals=False)
    report = predict_errors(
        PublicFacts(regions, neighbours),
        Prior.of("households", groups=GROUPS),
        [tt.Budget(epsilon=1)],
        Alternatives(["tallytree"]),
        effort=Effort(2),
    )
    half = {one.level: one.half_width for one in report.of(split="balanced")}
    rows = [{"household": number, "county": "C4"} for number in range(40) for _ in range(5)]  # unlike the prior
    table = pa.Table.from_pylist(rows)
    private = tt.read(table, group="household", region="county", hierarchy=regions, max_size=LARGEST)
    released = tt.release(private, budget=tt.Budget(epsilon=1), unit=tt.one_entity(), intervals="guaranteed")
    for row in released.table().to_pylist():
        answer = released.estimate(row["region"], row["size"], typical=False)
        middle, reach = max(answer.unbiased, 0), half[row["level"]] + 1e-6
        assert row["lower"] >= min(middle - reach, row["count"])
        assert row["upper"] <= max(middle + reach, row["count"], 1)


def test_a_goal_about_the_reach_needs_a_prior_and_one_about_the_half_width_does_not():
    known = PublicFacts(tree(), Neighbours(tt.one_entity(), LARGEST, public_totals=False)), tt.Budget(epsilon=1)
    from tallytree.planning.goals import suggest

    with pytest.raises(tt.SpecError, match=r"no prior given.*county half-width 12 at 95%"):
        suggest(*known, "county within 12 at 95%")
    found = suggest(*known, "county half-width 12 at 95%")
    assert found.reach is None
    assert found.half_widths[-1] <= 12
