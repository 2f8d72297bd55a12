import copy
import pickle

import numpy as np
import pytest

from tallytree import Hierarchy
from tallytree.tables import GroupSizes, Sealed

TREE = Hierarchy.from_levels({"state": ["A", "B"]}, ["state"])
SECRET = 987_654_321


@pytest.fixture
def private():
    return GroupSizes(TREE, 3, Sealed(np.full((2, 3), SECRET)))


def test_printing_shows_shape_only(private):
    for text in (repr(private), str(private), f"{private}", repr(vars(private)), repr(private.counts)):
        assert str(SECRET) not in text
    assert repr(private) == "GroupSizes(Hierarchy(total 1 → state 2), sizes 1–3, private totals)"


@pytest.mark.parametrize(
    "attempt",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda private: pickle.dumps(private.counts),
        lambda private: copy.deepcopy(private.counts),
        lambda private: np.asarray(private.counts),
        lambda private: np.array(private.counts).sum(),
        lambda private: list(private.counts),
        lambda private: private.counts[0],
        lambda private: len(private.counts),
        lambda private: bool(private.counts),
        lambda private: private.counts == private.counts,
        lambda private: f"{private.counts:>10}",
        lambda private: hash(private.counts),
    ],
)
def test_private_counts_refuse_to_leave(private, attempt):
    with pytest.raises(TypeError) as refusal:
        attempt(private)
    assert str(SECRET) not in str(refusal.value)
