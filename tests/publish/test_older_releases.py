"""What earlier versions published still verifies: their directories are kept here, with the ids they had."""

from pathlib import Path

import pytest

import tallytree as tt

OLDER = Path(__file__).parents[1] / "fixtures" / "version_0_1_0"
IDS = {
    "release": "ad2e5a35a94fd063316c18c08c398c11c5acf68e51d8a6360246eec11020dc32",
    "households": "73abdd30f2b3aad7a01f53ea7f80b94f948b61673f0a3a48fe010175be196613",
}


@pytest.mark.parametrize("name", IDS)
def test_what_an_older_version_published_verifies_under_its_id(name):
    outcome = tt.verify(OLDER / name, id=IDS[name])
    assert outcome.ok, outcome
    assert not tt.verify(OLDER / name, id="0" * 64).ok


def test_an_older_release_answers_questions():
    release = tt.Release.load(OLDER / "release")
    assert release.title == "A made-up country, released by version 0.1.0"
    assert release.estimate("North").released == release.counts[1].sum()
