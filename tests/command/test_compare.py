"""`tallytree compare` as a user types it: what it shows and writes, and how it refuses bad input."""

import json
import os
import re
import shutil
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest

import tallytree as tt
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables import GroupSizes, Sealed

COUNTIES = {"state": list("AABBB"), "county": list("12345")}
RUN = {"budget": tt.Budget(epsilon=2), "unit": "one_entity", "intervals": "none"}


def sizes(counts, columns=COUNTIES, levels=("state", "county"), **facts):
    tree = Hierarchy.from_levels(columns, list(levels))
    return GroupSizes(tree, counts.shape[1], Sealed(counts), leaf_totals=None, **facts)


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """Two years in which county 1 doubled, and what cannot be compared with them."""
    folder, rng = tmp_path_factory.mktemp("years"), np.random.default_rng(5)
    before = rng.poisson(300, (5, 4))
    after = before + np.array([[300], [0], [0], [0], [0]])
    tt.release(sizes(before), title="2025", **RUN).save(folder / "2025")
    tt.release(sizes(after), title="2026", **RUN).save(folder / "2026")
    return folder


@pytest.fixture
def folder(years):
    return years


def test_a_county_that_doubled_is_flagged_with_its_interval(typed):
    text = typed("compare", "2025", "2026", "--level", "county")
    assert "2025 → 2026" in text
    assert re.search("county groups 5 [1-5] [0-4]", text)  # a false flag is possible
    assert "county 1 groups +1," in text
    assert "increased" in text
    assert "On average at most 5 % of the flags of a level and question are false." in text
    assert "A region without a flag may have changed too." in text
    assert "protected by the sum of both budgets, ε = 4." in text
    assert "unchanged" not in text


def test_json_holds_every_row_and_fact(typed):
    text = typed("compare", "2025", "2026", "--json", "--size", ">=2", "--size", "1")
    found = json.loads(text)
    assert found["method"] == "Benjamini-Hochberg"
    assert {row["question"] for row in found["changes"]} == {"size 2 or more", "size 1"}
    assert {row["level"] for row in found["changes"]} == {"total", "state", "county"}
    (one,) = [row for row in found["changes"] if (row["region"], row["question"]) == ("1", "size 2 or more")]
    assert one["flag"] == "increased"
    assert one["change"] == one["after"] - one["before"]
    assert one["selected_lower"] <= one["change"] <= one["selected_upper"]
    assert one["percent_lower"] < one["percent"] < one["percent_upper"]
    holm = json.loads(typed("compare", "2025", "2026", "--json", "--family-wise", "--more-than", "50%"))
    assert holm["method"] == "Holm"
    assert holm["more_than"] == 0.5
    assert {row["region"] for row in holm["changes"] if row["flag"] == "increased"} >= {"1"}


def test_tables_facts_and_page_are_written(typed, years, tmp_path):
    typed("compare", "2025", "2026", "--out", tmp_path / "out", "--report", tmp_path / "page.html", "--quiet")
    assert sorted(os.listdir(tmp_path / "out")) == [
        "changes.csv",
        "changes.parquet",
        "comparison.json",
        "manifest.json",
        "report.html",
    ]
    rows = pq.read_table(tmp_path / "out" / "changes.parquet")
    assert rows.num_rows == 8 * 6
    assert rows.schema.field("lower").metadata[b"description"].startswith(b"lower end of the 95 % interval")
    assert re.search(r"county: groups \([1-5] increased, [0-4] decreased\)", (tmp_path / "page.html").read_text())
    again = typed("compare", "2025", "2026", "--out", tmp_path / "out", code=2)
    assert "is there already" in again or "exists" in again


def test_a_ledger_names_its_joint_total(typed, years):
    ledger = tt.Ledger(years / "ledger.db")
    relation = tt.Neighbours("one_entity", max_size=4, public_totals=False)
    names = []
    for year in (2025, 2026):
        data = sizes(np.full((5, 4), year), name=f"people-{year}")
        ledger.open(f"people-{year}", tt.Budget(epsilon=1), relation)
        made = tt.release(data, ledger=years / "ledger.db", **{**RUN, "budget": tt.Budget(epsilon=1)})
        made.save(years / f"paid-{year}")
        names.append(f"people-{year}")
    paid = "paid-2025", "paid-2026"
    assert "has no joint total for both" in typed("compare", *paid, "--ledger", "ledger.db")
    ledger.link(names, tt.Budget(epsilon=3))
    text = typed("compare", *paid, "--ledger", "ledger.db")
    assert "joint total for people-2025 and people-2026 is ε = 3; ε = 1 is left" in text


# -------------------------------------------------------------------- bad input


def refused(typed, tmp_path, *words):
    """The message of a refusal: exit code 2, and nothing was written."""
    before = sorted(os.listdir(tmp_path))
    text = typed("compare", *words, "--out", tmp_path / "out", "--report", tmp_path / "page.html", code=2)
    assert sorted(os.listdir(tmp_path)) == before
    return text


def test_one_folder_twice_or_a_copy_of_it_is_refused(typed, years, tmp_path):
    assert "both are the same release" in refused(typed, tmp_path, "2025", "2025")
    if not (years / "copy").exists():
        shutil.copytree(years / "2025", years / "copy")
    assert "both are the same release" in refused(typed, tmp_path, "copy", "2025")


def test_a_second_release_of_the_same_measurements_is_refused(typed, years, tmp_path):
    made = tt.Release.load(years / "2025")
    from dataclasses import replace

    replace(made, title="renamed").save(tmp_path / "renamed")
    assert "the same noisy measurements" in refused(typed, tmp_path, "2025", tmp_path / "renamed")


def test_folders_that_are_no_releases_are_refused(typed, years, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "is not a release" in refused(typed, tmp_path, "2025", tmp_path / "empty")
    assert "is not a release" in refused(typed, tmp_path, "nowhere", "2026")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a release" in refused(typed, tmp_path, "2025", tmp_path / "pipe")
    shutil.copytree(years / "2026", tmp_path / "piped")
    (tmp_path / "piped" / "counts.parquet").unlink()
    os.mkfifo(tmp_path / "piped" / "counts.parquet")
    assert "pipe" in refused(typed, tmp_path, "2025", tmp_path / "piped")


def test_a_forged_release_is_refused(typed, years, tmp_path):
    shutil.copytree(years / "2026", tmp_path / "forged")
    rows = pq.read_table(tmp_path / "forged" / "counts.parquet")
    counts = rows["count"].to_numpy().copy()
    counts[-1] += 1
    at = rows.column_names.index("count")
    pq.write_table(rows.set_column(at, rows.schema.field(at), [counts]), tmp_path / "forged" / "counts.parquet")
    text = refused(typed, tmp_path, "2025", tmp_path / "forged")
    assert "is not as it was published: counts.parquet was changed" in text


def test_unknown_levels_are_refused(typed, tmp_path):
    assert "there is no common level 'city'" in refused(typed, tmp_path, "2025", "2026", "--level", "city")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--more-than", "5"), "write a percentage"),
        (("--more-than", "nan%"), "write a percentage"),
        (("--size", "9"), "there is no size 9"),
        (("--by", "tenure=rented"), "has no categories"),
        (("--by", "tenure"), "no categor"),
        (("--map", "nowhere.json"), "there is no map"),
    ],
)
def test_wrong_options_are_refused(typed, tmp_path, words, message):
    assert message in refused(typed, tmp_path, "2025", "2026", *words)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("old_leaf,new_leaf\n1,1\n9,2\n", "row 2: '9' is not a leaf of the old release"),
        ("old_leaf,new_leaf\n1,B\n", "row 1: 'B' is not a leaf of the new release"),
        ("old_leaf,new_leaf\n1,2\n1,2\n", "row 2 repeats an earlier row"),
        ("old_leaf,new_leaf\n1,\n", "row 1: new_leaf is empty"),
        ("old_leaf,new_leaf\n", "it has no rows"),
        ("old,new\n1,1\n", "has no column 'old_leaf'"),
    ],
)
def test_a_wrong_concordance_is_refused(typed, tmp_path, rows, message):
    (tmp_path / "table.csv").write_text(rows)
    assert message in refused(typed, tmp_path, "2025", "2026", "--concordance", tmp_path / "table.csv")


def test_a_concordance_that_is_a_pipe_is_refused_at_once(typed, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    waiting = threading.Timer(20, lambda: os.close(os.open(tmp_path / "pipe.csv", os.O_WRONLY | os.O_NONBLOCK)))
    waiting.start()
    assert "is a pipe" in refused(typed, tmp_path, "2025", "2026", "--concordance", tmp_path / "pipe.csv")
    waiting.cancel()
