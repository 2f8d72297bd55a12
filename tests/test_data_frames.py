"""pandas and polars in and out: the same counts whichever frame the rows come in, and tables that both take."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tallytree as tt

ROWS = {"home": [1, 1, 2, 3, 3, 3, 4], "county": ["01", "01", "01", "02", "02", "02", "02"], "n": [2, 1, 1, 4, 1, 1, 2]}
REGIONS = {"state": ["A", "A"], "county": ["01", "02"]}
HOMES = {"home": [1, 2, 3, 4, 5], "county": ["01", "01", "02", "02", "02"]}
NUMPY_NUMBERS = (np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.longdouble)
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}


def counted(make):
    tree = tt.Hierarchy.from_levels(make(REGIONS), ["state", "county"])
    how = {"group": "home", "region": "county", "max_size": 5, "quantity": "n", "quantity_bound": 4}
    found = tt.read(make(ROWS), hierarchy=tree, groups=make(HOMES), groups_are_public=True, **how)
    return tree.ids, found.leaf_totals.tolist(), found.counts.open_at_the_privacy_border().tolist()


@pytest.mark.parametrize("frame", FRAMES)
def test_rows_regions_and_groups_may_be_frames(frame):
    expected = [[0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 1]]
    assert counted(FRAMES[frame]) == counted(pa.table) == (("A", "01", "02"), [2, 3], expected)


def test_released_tables_come_out_as_frames_with_their_numbers():
    tree = tt.Hierarchy.from_levels(REGIONS, ["state", "county"])
    private = tt.read(pl.DataFrame(ROWS), group="home", region="county", hierarchy=tree, max_size=5)
    release = tt.release(private, budget=tt.Budget(epsilon=1), unit="one_entity", intervals="guaranteed")
    for table in (release.table(), release.entities_table()):
        assert pl.from_arrow(table).to_dicts() == table.to_pylist()
        assert table.to_pandas().to_dict("records") == table.to_pylist()
    assert release.table().to_pandas()["region"].tolist()[-1] == "02"  # and not the number 2


@pytest.mark.parametrize(
    "number", [1, 1.0, "1", Decimal(1), Fraction(1), *(kind(1) for kind in NUMPY_NUMBERS)], ids=repr
)
def test_budgets_take_every_kind_of_number(number):
    assert tt.Budget(number) == tt.Budget(epsilon=1)
    assert tt.Budget(rho=number, delta="1e-9") == tt.Budget(rho=1, delta="1e-9")


def test_a_number_of_numpy_is_the_decimal_that_it_shows():
    assert tt.Budget(np.float32(0.1)) == tt.Budget(np.float16(0.1)) == tt.Budget(np.float64(0.1)) == tt.Budget("0.1")


@pytest.mark.parametrize("number", [True, np.bool_(True), np.array([1]), np.complex128(1), np.float64("nan"), None])
def test_what_is_no_number_is_no_budget(number):
    with pytest.raises(tt.BudgetError):
        tt.Budget(number)


@pytest.mark.parametrize(("size", "level"), [(np.int32(5), Decimal("0.9")), (np.uint8(5), np.float32(0.9))])
def test_a_release_made_with_numbers_of_numpy_is_the_one_made_with_those_of_python(size, level, tmp_path):
    def made(max_size, quantity_bound, confidence, budget):
        tree = tt.Hierarchy.from_levels(REGIONS, ["state", "county"])
        how = {"group": "home", "region": "county", "quantity": "n", "quantity_bound": quantity_bound}
        private = tt.read(pa.table(ROWS), hierarchy=tree, max_size=max_size, **how)
        return tt.release(private, budget=tt.Budget(budget), unit="one_entity", confidence=confidence)

    plain, given = made(5, 4, 0.9, 1), made(size, np.int64(4), level, np.int64(1))
    assert given.measurements.neighbours == plain.measurements.neighbours
    assert given.error_bars.confidence == plain.error_bars.confidence == 0.9
    given.save(tmp_path / "release")
    assert tt.verify(tmp_path / "release").ok


@pytest.fixture(scope="module")
def by_tenure():
    rows = {**ROWS, "tenure": ["own", "own", "own", "rent", "rent", "rent", "own"]}
    tree = tt.Hierarchy.from_levels(REGIONS, ["state", "county"])
    tenure = tt.Category("tenure", ["own", "rent"], decided_by="group")
    private = tt.read(pa.table(rows), group="home", region="county", hierarchy=tree, max_size=5, by=[tenure])
    areas = {"districts": {"West": ["01"], "All": ["01", "02"]}}
    return tt.release(private, budget=tt.Budget(1), unit="one_entity", areas=areas)


TABLES = ("counts", "entities", "areas")


@pytest.mark.parametrize("of", TABLES)
def test_frames_have_the_rows_and_columns_of_the_table(by_tenure, of):
    rows = by_tenure.table(of=of)
    assert by_tenure.to_arrow(of=of).equals(rows)
    assert by_tenure.to_polars(of=of).to_dicts() == rows.to_pylist()
    frame = by_tenure.to_pandas(of=of)
    assert frame.to_dict("records") == rows.to_pylist()
    assert list(frame.attrs["columns"]) == list(frame.columns)
    assert frame.attrs["columns"]["count" if of != "entities" else "entities"].startswith("number of")


@pytest.mark.parametrize("of", TABLES)
@pytest.mark.parametrize("level", [None, "nation", "state", "county"])
@pytest.mark.parametrize("by", [None, {}, {"tenure": "rent"}, {"tenure": "all"}])
def test_a_level_and_values_of_categories_select_the_rows_that_have_them(by_tenure, of, level, by):
    if (of == "areas" and level is not None) or level == "nation":
        with pytest.raises(tt.SpecError):
            by_tenure.table(level, by, of=of)
        return
    expected = [
        row
        for row in by_tenure.table(of=of).to_pylist()
        if (level is None or row["level"] == level) and all(row[name] == value for name, value in (by or {}).items())
    ]
    assert expected
    assert by_tenure.table(level, by, of=of).to_pylist() == expected


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [({"level": "couny"}, "county"), ({"by": {"tenur": "own"}}, "tenure"), ({"by": {"tenure": "buy"}}, "own")],
)
def test_an_unknown_level_or_value_is_refused_with_the_nearest_one(by_tenure, wrong, hint):
    with pytest.raises(tt.SpecError, match=hint):
        by_tenure.to_pandas(**wrong)


def test_a_release_in_memory_verifies_and_a_changed_one_does_not(by_tenure, tmp_path):
    assert by_tenure.release_id is None
    checked = tt.verify(by_tenure)
    assert checked.ok
    assert by_tenure.release_id is None  # nothing was saved
    assert by_tenure.save(tmp_path / "release") == checked.release_id
    assert tt.verify(tt.Release.load(tmp_path / "release"), id=checked.release_id).ok
    counts = by_tenure.counts.copy()
    counts[-1, 0] += 1
    assert not tt.verify(replace(by_tenure, counts=counts)).ok


@pytest.mark.parametrize("wrong", [3, None, {"a": 1}])
def test_only_a_directory_or_a_release_can_be_verified(wrong):
    with pytest.raises(tt.SpecError, match="a path or a Release"):
        tt.verify(wrong)
