"""Public tables: every way to give one is read alike, and what cannot be read is said clearly."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallytree import SpecError
from tallytree.core.public_table import numbers, public_table, text_columns

COLUMNS = {"code": ["01001", "01003"], "count": [3, None]}


def test_files_mappings_and_arrow_tables_are_read_alike(tmp_path):
    (tmp_path / "table.csv").write_text("code,count\n 01001 ,3\n01003,\n")
    pq.write_table(pa.table(COLUMNS), tmp_path / "table.PARQUET")
    batch = pa.RecordBatch.from_pydict(COLUMNS)
    for source in (tmp_path / "table.csv", str(tmp_path / "table.PARQUET"), COLUMNS, pa.table(COLUMNS), batch):
        found = public_table(source)
        assert found.column_names == ["code", "count"]
        assert text_columns(found, ["count", "code"]) == [["3", ""], ["01001", "01003"]]


def test_what_is_no_table_is_said_by_its_name(tmp_path):
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "empty.csv").write_text("")
    for source, message in (
        (tmp_path / "nowhere.csv", "there is no list at .*nowhere.csv"),
        (tmp_path / "twice.csv", "the list has two columns of the same name: a, a"),
        (tmp_path / "broken.parquet", "the list .*broken.parquet cannot be read"),
        (tmp_path / "empty.csv", "the list .*empty.csv cannot be read"),
        (tmp_path, "cannot be read"),
        ({"a": [1, 2], "b": [1]}, "the columns of the list differ in length: a has 2, b has 1"),
        (7, "the list is of type int; expected a path, columns by name or an Arrow table"),
        ([1, 2], "the list is of type list"),
    ):
        with pytest.raises(SpecError, match=message):
            public_table(source, "list")


def test_numbers_are_finite_and_not_negative():
    assert numbers(pa.chunked_array([["1", "2.5", "1e3"]]), "x").tolist() == [1, 2.5, 1000]
    for texts, message in (
        (["1", ""], "'x' .* holds ''; expected numbers$"),
        (["1", "-2"], "'-2'; expected numbers of at least 0"),
        (["inf"], "'inf'"),
        (["3", "2.5"], "'2.5'; expected integers"),
    ):
        with pytest.raises(SpecError, match=message):
            numbers(pa.chunked_array([texts]), "x", whole="integers" in message)
    assert numbers(pa.chunked_array([[3, 4]]), "x", whole=True).tolist() == [3, 4]
    with pytest.raises(SpecError, match="'-1'; expected numbers of at least 0"):
        numbers(pa.chunked_array([[3, -1]]), "x")
