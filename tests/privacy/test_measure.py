import numpy as np
import pytest

import tallytree.privacy.noise
import tallytree.privacy.opendp_noise
from tallytree import Budget, BudgetError, Hierarchy, Ledger, Measurements, ReleaseError, SpecError, measure, one_entity
from tallytree.privacy import Neighbours, Plan, Question, every_level, one_group
from tallytree.privacy.noise import laplace_variance
from tallytree.tables import GroupSizes, Sealed

TREE = Hierarchy.from_levels({"state": ["A", "A", "B", "DC"], "county": ["a", "b", "c", None]}, ["state", "county"])
LEAVES = np.arange(16, dtype=np.int64).reshape(4, 4) * 1000


def sizes(public=False, **facts):
    totals = LEAVES.sum(axis=1) if public else None
    return GroupSizes(TREE, 3 if public else 4, Sealed(LEAVES), leaf_totals=totals, **facts)


@pytest.mark.parametrize("source", ["tallytree", "opendp"])
@pytest.mark.parametrize("budget", [Budget(epsilon=3), Budget(rho=3), Budget(epsilon=3, delta="1e-9")], ids=str)
@pytest.mark.parametrize("view", ["counts", "at_least"])
@pytest.mark.parametrize("public", [False, True])
def test_what_leaves_is_the_view_of_every_level_plus_noise(view, public, budget, source):
    data = sizes(public)
    plan = every_level(view, TREE, budget, one_entity(), shares=[1, 2, 3])
    measurements = measure(data, plan, noise=source)
    sums = TREE.aggregate(LEAVES)
    if view == "at_least":
        sums = np.cumsum(sums[:, ::-1], axis=1)[:, ::-1][:, 1 if public else 0 :]
    noise = measurements.stacked(view) - sums
    assert noise.shape == sums.shape
    deviations = np.sqrt(measurements.variances(view))[TREE.level_of][:, None]
    assert np.all(np.abs(noise) < 60 * deviations + 60)  # fails by chance less than once in 10^20
    assert np.any(noise != 0) or deviations.max() < 0.5
    assert sum(part.cost for part in measurements.measured) <= budget.amount
    if source == "tallytree":
        assert sum(part.cost for part in measurements.measured) == budget.amount


def test_noise_is_drawn_and_the_ledger_charged_before_private_counts_are_touched(monkeypatch, tmp_path):
    events = []

    class Watched(Sealed):
        def open_at_the_privacy_border(self):
            events.append("private counts")
            return super().open_at_the_privacy_border()

    class WatchedLedger(Ledger):
        def reserve(self, *arguments):
            events.append("ledger")
            return super().reserve(*arguments)

    real = tallytree.privacy.noise.discrete_laplace

    def draw(scale, size):
        events.append("noise")
        return real(scale, size)

    monkeypatch.setattr(tallytree.privacy.noise, "discrete_laplace", draw)
    data = GroupSizes(TREE, 4, Watched(LEAVES), name="people")
    ledger = WatchedLedger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    measure(data, every_level("counts", TREE, Budget(epsilon=1), one_entity()), ledger=ledger)
    assert events == ["ledger", "noise", "noise", "noise", "private counts"]


def test_a_refused_cost_draws_nothing_and_touches_nothing(tmp_path):
    class Untouchable(Sealed):
        def open_at_the_privacy_border(self):
            raise AssertionError("private counts were opened")

    data = GroupSizes(TREE, 4, Untouchable(LEAVES), name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    with pytest.raises(BudgetError, match="Nothing was spent"):
        measure(data, every_level("counts", TREE, Budget(epsilon=2), one_entity()), ledger=ledger)
    with pytest.raises(BudgetError, match="another neighbour relation"):
        measure(data, every_level("counts", TREE, Budget(epsilon=1), one_group()), ledger=ledger)
    with pytest.raises(SpecError, match="scale"):  # noise too large to be drawn
        measure(data, every_level("counts", TREE, Budget(epsilon="1e-50"), one_entity()), ledger=ledger)
    with pytest.raises(SpecError, match="unknown noise source"):
        measure(data, every_level("counts", TREE, Budget(epsilon=1), one_entity()), ledger=ledger, noise="numpy")
    assert ledger.account("people").spent == 0


def test_a_plan_for_levels_that_are_not_there_is_refused():
    with pytest.raises(SpecError, match="level that is not there"):
        measure(sizes(), Plan(Budget(epsilon=1), one_entity(), (Question("counts", 3, 1),)))


def test_totals_can_be_measured_only_where_they_are_private():
    plan = every_level("totals", TREE, Budget(epsilon=300), one_entity())
    noisy = measure(sizes(), plan).stacked("totals")
    assert noisy.shape == (len(TREE), 1)
    assert np.abs(noisy - TREE.aggregate(LEAVES).sum(axis=1, keepdims=True)).max() < 50
    with pytest.raises(BudgetError, match="public"):
        measure(sizes(public=True), plan)


def test_variances_are_the_exact_ones():
    measurements = measure(sizes(), every_level("counts", TREE, Budget(epsilon=1), one_entity()))
    ratio = np.exp(-1 / 6)
    assert measurements.variances("counts") == pytest.approx([2 * ratio / (1 - ratio) ** 2] * 3, rel=1e-12)
    assert laplace_variance(6) == measurements.variances("counts")[0]


@pytest.mark.parametrize(
    ("view", "public"),
    [("counts", False), ("at_least", False), ("totals", False), ("counts", True), ("at_least", True)],
)
def test_measurements_survive_a_round_trip_through_parquet(tmp_path, view, public):
    plan = every_level(view, TREE, Budget(epsilon="1/3"), one_entity(), shares=[1, 1, 5])
    before = measure(sizes(public), plan)
    before.save(tmp_path / "m.parquet")
    after = Measurements.load(tmp_path / "m.parquet")
    assert np.array_equal(after.stacked(view), before.stacked(view))
    assert [part.to_json() for part in after.measured] == [part.to_json() for part in before.measured]
    assert after.neighbours == before.neighbours
    assert after.budget == before.budget
    assert after.hierarchy.to_json() == before.hierarchy.to_json()
    assert (after.region_totals is None) == (not public)
    assert after.receipt is None


def test_a_damaged_file_of_measurements_is_refused(tmp_path):
    import pyarrow.parquet as pq

    measure(sizes(), every_level("counts", TREE, Budget(epsilon=1), one_entity())).save(tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    pq.write_table(table.slice(1), tmp_path / "short.parquet")
    pq.write_table(table.take(list(range(len(table)))[::-1]), tmp_path / "turned.parquet")
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "bare.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 nothing PAR1")
    for name in ("short", "turned", "bare", "junk", "missing"):
        with pytest.raises(ReleaseError, match="does not hold measurements"):
            Measurements.load(tmp_path / f"{name}.parquet")


def test_a_view_that_was_not_measured_cannot_be_stacked():
    measurements = measure(sizes(), every_level("counts", TREE, Budget(epsilon=1), one_entity()))
    with pytest.raises(ReleaseError, match="not measured on every level"):
        measurements.stacked("at_least")
