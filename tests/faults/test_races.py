"""Each race of sixteen processes once; `make torture` runs them again and again."""

import random

import pytest

from tests.faults import races
from tests.faults.supervisor import can_supervise
from tests.faults.worlds import SMALL

pytestmark = [
    pytest.mark.skipif(not can_supervise(), reason="this system does not let a process be asked about system calls"),
    pytest.mark.xdist_group("faults"),
]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "release")) for name in SMALL])
@pytest.mark.parametrize("race", races.RACES)
def test_sixteen_at_once_are_charged_as_often_as_they_release(name, race):
    found = races.raced(name, race, random.Random(1))
    assert not found.broken, "\n".join(found.examples)
