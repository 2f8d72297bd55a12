"""From files as offices have them to a verified release: few commands, and no file written by hand."""

import pyarrow.parquet as pq
import pytest

import tallytree as tt
from tallytree.command.release_spec import ReleaseSpec
from tests.first_users import MOST_COMMANDS, USERS

PERSONS = {"statistician": "atlanta_arc_persons.parquet", "office": "oregon_2000_pums_persons.parquet"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.mark.parametrize("user", USERS)
def test_three_users_publish_a_verified_release_with_few_commands(typed, folder, public_file, user):
    assert USERS[user](folder, public_file, typed) <= MOST_COMMANDS
    release = tt.Release.load(folder / "release")
    assert release.total > 1_000
    assert not release.measurements.neighbours.public_totals
    if user in PERSONS:  # the spec that init wrote counts each household with a person, and no other one
        homes = pq.read_table(public_file(PERSONS[user]))["household_id"]
        counts = ReleaseSpec.load(folder / "release.toml").read().counts.open_at_the_privacy_border()
        assert counts.sum() == len(homes.unique())
