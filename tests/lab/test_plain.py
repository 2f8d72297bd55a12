"""Counts from plain files: long and wide, with clear refusals."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tallytree.core.errors import SpecError
from tallytree.lab.counts_files import UnclearLevels, UnclearSizes, read_counts
from tallytree.lab.datasets import make


def written(tmp_path, text, name="counts.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def columns_of(truth):
    """Region columns of every leaf, without the root."""
    tree = truth.hierarchy
    leaves = range(*tree.level_slice(tree.depth - 1).indices(len(tree)))
    return {level: [tree.path_of(leaf)[place] for leaf in leaves] for place, level in enumerate(tree.levels)}


def save(table, path):
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


# -------------------------------------------------------------------- long and wide


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("public_totals", [True, False])
def test_a_long_file_round_trips(suffix, public_totals, tmp_path):
    truth = make("census", scale=0.01, public_totals=public_totals)
    leaf, cell = np.nonzero(truth.counts)
    regions = {level: np.array(names)[leaf] for level, names in columns_of(truth).items()}
    table = pa.table({**regions, "size": cell + truth.first_size, "count": truth.counts[leaf, cell]})
    table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    back = read_counts(save(table, tmp_path / f"long{suffix}"), public_totals=public_totals, max_size=1000)
    assert back.hierarchy.levels == truth.hierarchy.levels
    order = [back.hierarchy.index[region] for region in truth.hierarchy.ids]
    assert np.array_equal(back.all_levels()[order], truth.all_levels())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("prefix", ["hh", "", "size_"])
def test_a_wide_file_round_trips(suffix, prefix, tmp_path):
    truth = make("census", scale=0.01, max_size=7)
    sizes = {f"{prefix}{size}": truth.counts[:, size] for size in range(1, 7)}
    table = pa.table({**columns_of(truth), **sizes, f"{prefix}7plus": truth.counts[:, 7]})
    back = read_counts(save(table, tmp_path / f"wide{suffix}"))
    assert back.hierarchy.ids == truth.hierarchy.ids
    assert np.array_equal(back.counts, truth.counts)


def test_region_codes_keep_their_zeros(tmp_path):
    truth = read_counts(written(tmp_path, "state,county,size,count\n01,01001,2,5\n02,02001,1,1\n02,02003,1,1\n"))
    assert truth.hierarchy.ids == ("total", "01", "02", "01001", "02001", "02003")
    assert truth.name == "counts"


def test_sizes_below_the_first_column_are_zero(tmp_path):
    truth = read_counts(written(tmp_path, "place,hh2,hh3plus\na,4,1\nb,0,2\n"))
    assert truth.counts.tolist() == [[0, 0, 4, 1], [0, 0, 0, 2]]
    private = read_counts(tmp_path / "counts.csv", public_totals=False)
    assert private.counts.tolist() == [[0, 4, 1], [0, 0, 2]]


def test_size_columns_may_stand_in_any_order(tmp_path):
    truth = read_counts(written(tmp_path, "place,n3+,n1,n2\na,3,1,2\n"))
    assert truth.counts.tolist() == [[0, 1, 2, 3]]


def test_a_file_without_levels_is_one_region(tmp_path):
    truth = read_counts(written(tmp_path, "size,count\n0,9\n3,1\n"))
    assert len(truth.hierarchy) == 1
    assert truth.counts.tolist() == [[9, 0, 0, 1]]


def test_larger_groups_count_as_the_largest_size_asked_for(tmp_path):
    truth = read_counts(written(tmp_path, "size,count\n1,9\n3,1\n8,2\n"), max_size=3)
    assert truth.counts.tolist() == [[0, 9, 0, 3]]


def test_columns_may_have_other_names(tmp_path):
    path = written(tmp_path, "note,place,persons,homes\nx,a,1,3\ny,a,2,1\n")
    assert read_counts(path, ["place"], size="persons", count="homes").counts.tolist() == [[0, 3, 1]]


def test_the_family_of_size_columns_can_be_named(tmp_path):
    path = written(tmp_path, "place,hh1,hh2,car0,car1\na,1,2,3,4\n")
    with pytest.raises(SpecError, match="several families"):
        read_counts(path, ["place"])
    assert read_counts(path, ["place"], size="car").counts.tolist() == [[3, 4]]


def test_a_level_may_end_in_a_number(tmp_path):
    path = written(tmp_path, "admin1,admin2,1,2\na,b,1,2\na,c,3,4\n")
    assert read_counts(path, ["admin1", "admin2"]).counts.tolist() == [[0, 1, 2], [0, 3, 4]]


def test_a_branch_may_end_early(tmp_path):
    truth = read_counts(written(tmp_path, "state,county,1,2\nDC,,1,2\nVA,x,3,4\nVA,y,5,6\n"))
    assert truth.hierarchy.ids[-3:] == ("DC@county", "x", "y")
    assert truth.counts.tolist() == [[0, 1, 2], [0, 3, 4], [0, 5, 6]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("place,size,count\na,1,-2\n", {}, "holds '-2'; expected integers of at least 0"),
        ("place,size,count\na,-1,2\n", {}, "holds '-1'; expected integers"),
        ("place,hh1,hh2\na,1,-2\n", {}, "'hh2' of the public table holds '-2'"),
        ("place,size,count\na,1,2.5\n", {}, "holds '2.5'; expected integers"),
        ("place,size,count\na,1,\n", {}, "holds ''"),
        ("place,size,count\na,1,2\na,1,3\n", {}, "1 rows repeat the region and size of an earlier row"),
        ("place,hh1,hh2\na,1,2\na,3,4\n", {}, "1 rows repeat the region of an earlier row"),
        ("place,hh1,hh3\na,1,2\n", {}, "gaps"),
        ("place,hh1plus,hh2\na,1,2\n", {}, "only the largest size may be open"),
        ("place,people\na,1\n", {}, "neither the columns 'size' and 'count' nor one column per size"),
        ("place,size\na,1\n", {"levels": ["place"]}, "no column 'count'"),
        ("place,size,count\na,1,2\n", {"levels": ["county"]}, "no column county"),
        ("place,size,count\na,1,2\n", {"levels": ["size"]}, "cannot be a level"),
        ("place,size,count\na,1,2\n", {"levels": "place"}, "list of column names"),
        ("place,size,count,note\na,1,2,x\n", {}, "unclear"),
        ("place,size,count\na,0,2\n", {"public_totals": False}, "2 groups have size 0"),
        ("place,size,count\na,900000000,2\n", {}, "too many cells"),
        ("place,size,count\na,1,2\n", {"max_size": 0}, "max_size"),
        ("place,place,count\na,1,2\n", {}, "two columns of the same name"),
        ("place,size,count\n", {}, "no rows"),
        ("", {}, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, options, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        read_counts(written(tmp_path, text), **options)


def test_an_absent_file_is_said(tmp_path):
    with pytest.raises(SpecError, match="there is no file"):
        read_counts(tmp_path / "nothing.csv")


# -------------------------------------------------------------------- levels that nobody stated are not invented


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("state,county,total,hh1,hh2\nA,a,3,1,2\nA,b,7,3,4\nB,c,11,5,6\n", "total", "holds numbers"),
        ("state,county,total,hh1,hh2\nA,a,3,1,2\nA,b,3,3,4\nB,c,,5,6\n", "total", "holds numbers"),
        ("state,county,dwellings,size,count\nA,a,30,1,2\nA,b,70,3,4\nB,c,70,5,6\n", "dwellings", "holds numbers"),
        ("state,county,km2,size,count\nA,a,1.5,1,2\nA,b,-70,3,4\nB,c,1e3,5,6\n", "km2", "holds numbers"),
        ("code,label,size,count\na,Anna,1,2\nb,Bob,1,2\n", "label", "divides no region"),
        ("state,county,governor,1,2\nA,a,Ann,1,2\nA,b,Ann,3,4\nB,c,Bob,5,6\n", "governor", "divides no region"),
        ("county,state,1,2\na,A,1,2\nb,A,3,4\nc,B,5,6\n", "state", "divides no region"),
        ("state,sex,1,2\nA,f,1,2\nA,m,3,4\nB,f,5,6\nB,m,5,6\n", "sex", "has the same names in several regions"),
        ("state,county,1,2,note\nA,a,1,2,x\nA,b,3,4,y\n", "note", "stands after the sizes"),
    ],
)
def test_a_column_that_may_be_no_level_is_not_taken_for_one(text, column, why, tmp_path):
    with pytest.raises(UnclearLevels, match=f"'{column}' {why}") as stop:
        read_counts(written(tmp_path, text))
    assert column in str(stop.value).partition("it has the columns ")[2]
    assert column not in stop.value.likely
    assert f"levels={list(stop.value.likely)!r}" in str(stop.value)


def test_codes_that_look_like_numbers_are_levels_if_they_are_said_to_be(tmp_path):
    path = written(tmp_path, "state,county,size,count\n1,11,1,2\n1,12,3,4\n2,23,5,6\n")
    with pytest.raises(UnclearLevels, match="'state' holds numbers") as stop:
        read_counts(path)
    assert read_counts(path, stop.value.likely).hierarchy.levels == ("total", "state", "county")


def test_the_levels_that_are_suggested_are_those_that_are_certain(tmp_path):
    path = written(tmp_path, "state,label,county,total,hh1,hh2\nA,Aa,a,3,1,2\nA,Aa,b,7,3,4\nB,Bb,c,11,5,6\n")
    with pytest.raises(UnclearLevels) as stop:
        read_counts(path)
    assert stop.value.likely == ("state", "county")
    assert read_counts(path, stop.value.likely).hierarchy.levels == ("total", "state", "county")


def test_codes_with_zeros_in_front_and_names_that_come_twice_are_levels_all_the_same(tmp_path):
    text = "state,county,1,2\n01,Clay,1,2\n01,Bath,3,4\n02,Clay,5,6\n12,Dale,5,6\n"
    assert read_counts(written(tmp_path, text)).hierarchy.levels == ("total", "state", "county")


def test_columns_of_years_are_not_taken_for_sizes(tmp_path):
    path = written(tmp_path, "place,pop2019,pop2020\na,1,2\nb,3,4\n")
    with pytest.raises(UnclearSizes, match="2019") as stop:
        read_counts(path)
    assert stop.value.prefixes == ("pop",)
    assert read_counts(path, size="pop").max_size == 2020
