"""Experiments: the same by seed, resumed after a kill, and never brought down by a mechanism."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import tallytree as tt
from tallytree.lab import Results, compare
from tallytree.lab.runner import Cell, CellWorker, save_truth
from tallytree.lab.truth import seeded_measurements
from tests.lab import helpers

ROOT = Path(__file__).parent.parent.parent
ONE = [tt.Budget(epsilon=1)]
BOTH = ["pgsr-hierarchical-dp", "pgsr-cumulative-dp"]
COSTS = ("seconds", "processor_seconds", "peak_megabytes", "working_megabytes")


def numbers(results):
    """Everything but what the machine's load can change."""
    return [row for row in results.rows.to_pylist() if not str(row["metric"]).startswith(COSTS)]


@pytest.fixture(scope="module")
def results():
    return compare(helpers.small_truth(), BOTH, [tt.Budget(epsilon="0.1"), *ONE], runs=3, jobs=2)


def test_the_same_seed_gives_the_same_results_whatever_the_number_of_processes(results):
    again = compare(helpers.small_truth(), BOTH, [tt.Budget(epsilon="0.1"), *ONE], runs=3, jobs=1)
    assert numbers(again) == numbers(results)
    other = compare(helpers.small_truth(), BOTH[:1], ONE, runs=1, seed=1)
    wanted = {"mechanism": BOTH[0], "epsilon": 1.0, "run": 0}
    assert numbers(other) != [row for row in numbers(results) if wanted.items() <= row.items()]


def test_the_scores_are_those_of_the_mechanisms_own_estimate(results):
    truth, budget = helpers.small_truth(), ONE[0]
    plan = helpers.PGSR.plan(truth.hierarchy, budget, tt.one_entity())
    counts = helpers.PGSR.estimate(seeded_measurements(truth, plan, 0, str(budget.to_json()), 2)).counts
    l1 = np.abs(counts - truth.all_levels()).sum()
    wanted = {"mechanism": helpers.PGSR.name, "epsilon": 1.0, "run": 2, "metric": "l1", "level": "all levels"}
    found = [row for row in results.rows.to_pylist() if wanted.items() <= row.items()]
    assert [row["value"] for row in found] == [l1]


def test_every_row_says_that_it_is_not_private_and_what_it_is_about(results, tmp_path):
    assert set(results.rows["privacy"].to_pylist()) == {"NOT PRIVATE"}
    assert set(results.rows["status"].to_pylist()) == {"done"}
    metrics = set(results.rows["metric"].to_pylist())
    assert {"l1", "emd", "violations", "seconds_measuring", "seconds_estimating"} <= metrics
    assert metrics & {"peak_megabytes", "peak_megabytes_since_start"}
    for path in results.save(tmp_path / "out"):
        assert b"NOT PRIVATE" in path.read_bytes()
    assert Results.load(tmp_path / "out").rows.equals(results.rows)


def test_the_summary_is_mean_and_standard_error_over_runs(results):
    key = {"mechanism": BOTH[1], "budget": "ε = 0.1", "level": "county", "metric": "emd", "size": None}
    values = [row["value"] for row in results.rows.to_pylist() if key.items() <= row.items()]
    (row,) = [row for row in results.summary().to_pylist() if key.items() <= row.items()]
    assert row["runs"] == len(values) == 3
    assert row["mean"] == pytest.approx(np.mean(values))
    assert row["standard_error"] == pytest.approx(np.std(values, ddof=1) / 3**0.5)


def test_a_mechanism_that_fails_hangs_or_dies_is_a_row_and_the_others_go_on(tmp_path):
    bad = [helpers.fail, helpers.hang, helpers.die, helpers.misshapen]
    mechanisms = [*map(helpers.mechanism, bad), BOTH[0]]
    results = compare(helpers.small_truth(), mechanisms, ONE, runs=1, jobs=1, limit=3, out=tmp_path)
    found = {row["mechanism"]: (row["status"], row["message"]) for row in results.failures()}
    assert found["fail"] == ("failed", "ZeroDivisionError: on purpose")
    assert found["hang"] == ("timeout", "took longer than 3 s")
    assert found["die"] == ("died", "its process ended with exit code 7")
    assert found["misshapen"][0] == "failed"
    assert "cannot be scored" in found["misshapen"][1]
    assert len(results.failures()) == 4
    assert set(results.summary()["mechanism"].to_pylist()) == {BOTH[0]}
    journal = (tmp_path / "journal.jsonl").read_bytes()
    again = compare(helpers.small_truth(), mechanisms, ONE, runs=1, limit=3, out=tmp_path)
    assert again.rows.equals(results.rows)
    assert (tmp_path / "journal.jsonl").read_bytes() == journal  # nothing was tried again
    (row,) = compare(helpers.small_truth(), mechanisms[1:2], ONE, runs=1, limit=3.1, out=tmp_path).failures()
    assert row["message"] == "took longer than 3.1 s"  # but what a shorter limit cut off is


def test_a_run_in_which_a_kernel_was_compiled_or_loaded_is_timed_again(tmp_path):
    save_truth(helpers.small_truth(), tmp_path)
    own = helpers.mechanism(helpers.with_a_kernel_of_its_own)
    worker = CellWorker(tmp_path, tt.one_entity(), 0, {own.name: own})
    timed = []
    for run in range(2):
        cell = Cell(own.name, ONE[0], run)
        worker.prepare(cell)
        helpers.TIMED.clear()
        assert worker.run(cell)["status"] == "done"
        timed.append(len(helpers.TIMED))
    assert timed == [2, 1]


def test_the_papers_symbols_are_compared_under_their_own_names():
    results = compare(helpers.small_truth(public_totals=True), ["M_H^dp", "H_g", "H_c"], ONE, runs=1, jobs=1)
    assert not results.failures()
    summary = [row for row in results.summary().to_pylist() if row["metric"] == "emd"]
    assert {row["mechanism"] for row in summary} == {"pgsr-hierarchical-dp", "H_g", "H_c"}


def test_a_mechanism_that_refuses_the_data_says_why():
    unit = replace(helpers.PGSR, name="wrong view", view="nonsense")
    results = compare(helpers.small_truth(), [unit, BOTH[0]], ONE, runs=1, jobs=1)
    (row,) = results.failures()
    assert row["status"] == "refused"
    assert "unknown view" in row["message"]
    assert set(results.summary()["standard_error"].to_pylist()) == {None}  # one run tells nothing about spread


KILLED = """
import sys
import tallytree as tt
from tallytree.lab import compare
from tests.lab import helpers
if __name__ == "__main__":
    mechanism = helpers.mechanism(helpers.slow_and_counted)
    compare(helpers.small_truth(), [mechanism], [tt.Budget(epsilon=1)], runs=6, jobs=1, out=sys.argv[1])
"""


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_after_a_kill_finished_cells_are_not_run_again(tmp_path):
    marks, out, script = tmp_path / "marks", tmp_path / "out", tmp_path / "script.py"
    marks.mkdir()
    script.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TALLYTREE_TEST_MARKS": str(marks)}
    words = [sys.executable, str(script), str(out)]
    process = subprocess.Popen(words, env=environment)
    journal, deadline = out / "journal.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") >= 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = {int(mark.name.split("-")[0]) for mark in marks.iterdir()}
    while any(map(is_running, workers)):  # they notice, and end too
        time.sleep(0.02)
    finished = journal.read_bytes().count(b"\n") - 1
    started = len(list(marks.iterdir()))
    assert 2 <= finished < 6
    assert started <= finished + 1
    with journal.open("ab") as file:
        file.write(b'{"mechanism": "slow_and_counted", "bud')  # as if killed while writing
    subprocess.run(words, env=environment, check=True, timeout=120)
    assert len(list(marks.iterdir())) == started + 6 - finished
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sorted(line["run"] for line in lines[1:]) == [0, 1, 2, 3, 4, 5]


def test_a_journal_is_extended_by_more_runs_and_gives_what_one_start_would(tmp_path, results):
    seen = []
    truth, budgets = helpers.small_truth(), [tt.Budget(epsilon="0.1"), *ONE]
    compare(truth, BOTH[:1], ONE, runs=2, jobs=1, out=tmp_path)
    grown = compare(truth, BOTH, budgets, runs=3, jobs=1, out=tmp_path, progress=seen.append)
    assert numbers(grown) == numbers(results)
    assert (seen[0].done, seen[0].of, seen[0].resumed) == (2, 12, 2)
    assert (seen[-1].done, seen[-1].seconds_left) == (12, 0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    compare(helpers.small_truth(), BOTH[:1], ONE, runs=1, out=folder)
    return folder


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 7}, "seed 0 there, 7 now"),
        ({"unit": tt.one_group()}, "unit"),
        ({"truth": helpers.small_truth(public_totals=True)}, "counts"),
    ],
)
def test_a_journal_of_another_experiment_is_refused(kept, change, named):
    options = {"truth": helpers.small_truth(), "mechanisms": BOTH[:1], "budgets": ONE, "runs": 1, **change}
    with pytest.raises(tt.SpecError, match=f"another experiment.*{named}"):
        compare(**options, out=kept)


def test_a_damaged_journal_is_an_error_that_says_where(kept, tmp_path):
    (tmp_path / "journal.jsonl").write_bytes((kept / "journal.jsonl").read_bytes() + b"nonsense\n")
    with pytest.raises(tt.SpecError, match=r"line 3 .* is damaged"):
        compare(helpers.small_truth(), BOTH[:1], ONE, runs=1, out=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanisms": ["pgsr-cumulative"]}, "did you mean 'pgsr-cumulative-dp'"),
        ({"mechanisms": []}, "at least one mechanism"),
        ({"mechanisms": [helpers.PGSR, replace(helpers.PGSR, keeps="other")]}, "two mechanisms"),
        ({"mechanisms": [replace(helpers.PGSR, name="mine", estimate=lambda _: None)]}, "top of a module"),
        ({"budgets": []}, "at least one budget"),
        ({"runs": 0}, "runs must be an integer of at least 1, not 0"),
        ({"jobs": 0}, "jobs"),
        ({"limit": 0}, "limit"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options_are_errors_before_anything_runs(options, message):
    with pytest.raises(tt.SpecError, match=message):
        compare(helpers.small_truth(), **options)
