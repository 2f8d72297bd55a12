"""What earlier versions published still verifies: their directories are kept here, with the ids they had."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt
from tallytree.publish.release.making import estimated
from tallytree.version import VERSION
from tests.oracles.example import made_up

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


def test_another_optimum_of_an_older_version_verifies_and_one_of_this_version_does_not(tmp_path, monkeypatch):
    data = made_up(3, public_totals=False)
    made = tt.release(
        data, budget=tt.Budget(epsilon=1), unit=tt.one_group(), mechanism="pgsr-hierarchical-dp", intervals="none"
    )
    tree, noisy = made.measurements.hierarchy, np.zeros_like(made.counts)
    above = int(np.argmax(np.diff(tree.child_starts)[tree.level_slice(tree.depth - 2)])) + tree.level_starts[-3]
    noisy[[*path_to(tree, above)], 0] = 1  # one group in one leaf or another below: these are as near
    parts = tuple(
        replace(part, values=np.ascontiguousarray(noisy[tree.level_slice(part.level)]))
        for part in made.measurements.measured
    )
    measurements = replace(made.measurements, measured=parts, receipt=None)
    one = estimated(measurements, made.made_by, intervals="none")
    other, worse = np.zeros_like(one.counts), np.zeros_like(one.counts)
    first, last = tree.child_starts[above : above + 2]
    taken = first + int(np.argmax(one.counts[first:last, 0]))
    other[[*path_to(tree, first if taken > first else last - 1)], 0] = 1
    worse[[*path_to(tree, first)], 0] = 2
    for version, counts, ok in ((VERSION, other, False), ("0.2.0", other, True), ("0.1.0", worse, False)):
        monkeypatch.setattr("tallytree.publish.statement.VERSION", version)
        replace(one, counts=counts).save(tmp_path / version)
        assert tt.verify(tmp_path / version).ok == ok


def path_to(tree, leaf):
    while leaf >= 0:
        yield leaf
        leaf = int(tree.parents[leaf])
