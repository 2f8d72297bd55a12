"""A few hundred of the inputs that `make torture` tries by the ten thousand."""

from random import Random

from tallytree import SpecError
from tests.faults import fuzz


def test_careless_and_hostile_inputs_are_taken_or_refused_for_people():
    tally = fuzz.run(500, seed=14)
    assert tally.runs == 500
    assert tally.broken == 0, "\n".join(tally.examples)


def test_the_fuzzer_notices_what_is_not_for_people(monkeypatch, tmp_path):
    def fails(random: Random, folder):
        raise KeyError("x")

    def is_refused(random: Random, folder):
        raise SpecError("x")

    def hangs(random: Random, folder):
        while True:
            pass

    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    monkeypatch.setattr(fuzz, "KINDS", {"fails": (fails, 1), "is_refused": (is_refused, 1), "hangs": (hangs, 1)})
    tally = fuzz.run(6, seed=0)
    assert (tally.tracebacks, tally.hung, tally.broken) == (2, 2, 4)
