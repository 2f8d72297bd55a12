"""pandas and polars in and out: the same counts whichever frame the rows come in, and tables that both take."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tallytree as tt

ROWS = {"home": [1, 1, 2, 3, 3, 3, 4], "county": ["01", "01", "01", "02", "02", "02", "02"], "n": [2, 1, 1, 4, 1, 1, 2]}
REGIONS = {"state": ["A", "A"], "county": ["01", "02"]}
HOMES = {"home": [1, 2, 3, 4, 5], "county": ["01", "01", "02", "02", "02"]}
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
