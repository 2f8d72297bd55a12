"""Rows of the plausibility experiment as tables."""

import json

import pytest
from experiments.plausible_tables import Column, markdown, number

from experiments import plausible


def row(structure, run, mean_error, epsilon="1", **more):
    measures = {
        "breaking_rules": 0 if structure else 1234,
        "accepted": 0.95,
        "max_error": 0.01,
        "correlation": 0.75 if structure else None,
        "heads_under_16": 0.0,
        "children_apart": 0.05,
        "persons_apart": 0.02,
        "three_generations": 0.02,
        "true_correlation": 0.8,
    }
    named = {"data": "made up", "epsilon": epsilon, "run": run, "structure": structure, "mean_error": mean_error}
    return named | measures | more


ROWS = [
    row(False, 0, 0.002),
    row(False, 1, 0.004),
    row(True, 0, 0.001),
    row(True, 1, 0.002),
    row(False, 0, 0.1, "0.25"),
]


def test_a_table_has_means_before_and_with_roles_and_their_ratio(tmp_path, monkeypatch, capsys):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in ROWS))
    monkeypatch.setattr("sys.argv", ["plausible", "--out", str(file), "--tables"])
    plausible.main()
    shown = capsys.readouterr().out
    assert shown.strip() == markdown(ROWS)
    lines = shown.splitlines()
    assert lines[0] == "| made up (runs: 1 and 0, 2 and 2) | ε = 0.25 | ε = 1 |"
    assert "| mean error | .10000 | .00300 → .00150 |" in lines
    assert "| households that break a rule | 1,234 | 1,234 → 0 |" in lines
    assert "| age correlation of the pair (truth .80) |  | .75 |" in lines
    assert "| kept all rules when drawn first |  | .950 |" in lines
    assert not any("one sex" in line for line in lines)


def test_a_ratio_has_its_standard_error_once_there_are_two_runs():
    assert Column(ROWS[:4]).ratio("mean_error") == "0.50 ± 0.24"
    assert Column([ROWS[0], ROWS[2]]).ratio("mean_error") == "0.50"
    assert Column(ROWS[:2]).ratio("mean_error") == ""


@pytest.mark.parametrize(
    ("value", "digits", "percent", "text"),
    [(0.25, 2, False, ".25"), (1.5, 1, False, "1.5"), (12345, 0, False, "12,345"), (0.031, 1, True, "3.1 %")],
)
def test_numbers_are_short(value, digits, percent, text):
    assert number(value, digits, percent) == text


def test_runs_need_data(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["plausible", "--out", str(tmp_path / "rows.jsonl")])
    with pytest.raises(SystemExit):
        plausible.main()
    assert "--data is needed" in capsys.readouterr().err
