"""Folders of earlier versions in a form that is kept verify with this version."""

from pathlib import Path

import pytest

from tallytree import Release, verify
from tallytree.publish.folder import FORM

FIXTURES = Path(__file__).parents[1] / "fixtures"
KINDS = ("release", "by_category", "synthesis")


def test_there_is_a_folder_of_each_kind_in_the_present_form():
    assert {path.name for path in (FIXTURES / f"form_{FORM}").iterdir()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_this_form_verifies(kind):
    assert verify(FIXTURES / f"form_{FORM}" / kind).faults == ()


def test_a_release_of_this_form_answers_queries():
    made = Release.load(FIXTURES / f"form_{FORM}" / "release")
    answer = made.estimate("A", ">=2")
    assert answer.guaranteed[0] <= answer.released <= answer.guaranteed[1]
