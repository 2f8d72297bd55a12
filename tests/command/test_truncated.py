"""What the screen says of data whose rows were dropped."""

from pathlib import Path

import pytest
from rich.console import Console

from tallytree.command import screen
from tallytree.command.query import answer, bands
from tests.publish.release.test_truncation import DROPPED, MOST, released, trips


def shown(part):
    console = Console(width=200, highlight=False)
    with console.capture() as text:
        console.print(part, markup=False)
    return " ".join(text.get().split())


@pytest.fixture(scope="module")
def releases():
    return released(trips(entity="driver", rows_per_entity=MOST)), released(trips())


def test_a_summary_says_that_rows_were_dropped_and_otherwise_nothing(releases):
    how = (Path("out"), "0" * 64)
    truncated, whole = (shown(screen.release_summary(one, *how)) for one in releases)
    assert DROPPED in truncated
    assert "truncated" not in whole


def test_answers_say_whose_truth_they_are_about(releases):
    truncated, whole = (shown(answer(one.estimate("a", typical=False))) for one in releases)
    assert "at least 95 %, for any value of the truth of the data as truncated" in truncated
    assert DROPPED in truncated
    assert "at least 95 %, for any value of the truth" in whole
    assert "truncated" not in whole


def test_bands_say_it_too(releases):
    truncated, whole = (shown(bands(one, one.bands("a").to_pylist(), None)) for one in releases)
    assert DROPPED in truncated
    assert "truncated" not in whole
