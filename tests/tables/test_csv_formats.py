"""CSV files as offices write them: delimiters, decimal commas and encodings, set or shown by the first line."""

import gzip

import pyarrow as pa
import pytest

from tallytree import DataError, Hierarchy, SpecError
from tallytree.core.csv_files import CsvFormat, guess_encoding
from tallytree.core.public_table import public_table
from tallytree.tables import InputProblems, read

PLACES = Hierarchy.from_levels({"place": ["Zürich", "Genève, Ville", "Łódź"]}, ["place"])
ROWS = [("a", "Zürich", 1), ("a", "Zürich", 2), ("b", "Genève, Ville", 3)]


def counts(path, **options):
    given = read(path, group="home", region="place", hierarchy=PLACES, max_size=9, **options)
    return given.counts.open_at_the_privacy_border().tolist()


def written(path, delimiter, encoding="utf-8", mark="", number=str):
    quoted = [(home, f'"{place}"', number(size)) for home, place, size in ROWS]
    text = mark + "\r\n".join(delimiter.join(cells) for cells in [("home", "place", "size"), *quoted]) + "\r\n"
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


EXPECTED = [[0, 1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0], [0] * 9]


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_first_line_shows_the_delimiter(tmp_path, delimiter, name):
    path = written(tmp_path / name, delimiter)
    assert counts(path) == EXPECTED
    assert counts(path, delimiter=delimiter) == EXPECTED
    assert public_table(path)["place"].to_pylist() == [place for _, place, _ in ROWS]


def test_any_other_delimiter_is_set(tmp_path):
    path = written(tmp_path / "p.csv", "~")
    assert counts(path, delimiter="~") == EXPECTED
    with pytest.raises(InputProblems, match="not in the microdata"):
        counts(path)


@pytest.mark.parametrize(
    ("encoding", "option"),
    [("cp1252", "windows-1252"), ("latin-1", "latin-1"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le")],
)
@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz"])
def test_encodings_are_set_and_otherwise_refused_with_a_hint(tmp_path, encoding, option, name):
    path = written(tmp_path / name, ";", encoding)
    assert counts(path, encoding=option) == EXPECTED
    assert counts([path, path], encoding=option)[0] == [0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert public_table(path, form=CsvFormat(encoding=option))["place"].to_pylist()[0] == "Zürich"
    for reader in (counts, public_table):
        with pytest.raises((SpecError, DataError), match=r"is not UTF-8.*encoding ="):
            reader(path)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_the_encoding_is_guessed(tmp_path, encoding):
    path = written(tmp_path / "p.csv", ";", encoding)
    assert counts(path, encoding=guess_encoding([str(path)])) == EXPECTED


def test_a_byte_that_the_encoding_does_not_have_is_named_by_its_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"home;place\na;Z\xfcrich\nb;\x81\n")
    with pytest.raises(DataError, match=r"line 3 of .* not valid in the encoding windows-1252"):
        counts(path, encoding="windows-1252")


def test_a_broken_line_is_named_in_every_encoding(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes("home;place\na;Zürich\nb;Zürich;7\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"line 3 of .* has 3 cells"):
        counts(path, encoding="windows-1252")


def test_a_decimal_comma_is_read_only_if_it_is_set(tmp_path):
    path = written(tmp_path / "p.csv", ";", number=lambda size: f"{size},0")
    how = {"quantity": "size", "quantity_bound": 5}
    assert counts(path, decimal=",", **how) == [[0, 0, 1, *[0] * 6], [0, 0, 1, *[0] * 6], [0] * 9]
    with pytest.raises(InputProblems, match="3 rows have a quantity that is not a number"):
        counts(path, **how)


def test_with_a_decimal_comma_a_point_is_no_number(tmp_path):
    path = written(tmp_path / "p.csv", ";", number=lambda size: f"{size}.000")  # thousands
    with pytest.raises(InputProblems, match="3 rows have a quantity that is not a number"):
        counts(path, decimal=",", quantity="size", quantity_bound=5)


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
def test_how_a_row_is_read_does_not_depend_on_the_other_rows(tmp_path, delimiter):
    """A row more or less changes the count of its own group alone, whatever it contains."""
    alone = written(tmp_path / "p.csv", delimiter)
    for odd in (f'c{delimiter}"Łódź"{delimiter}1', f'c{delimiter}"a;b|c,d"{delimiter}"1;2,3|4"'):
        more = tmp_path / "more.csv"
        more.write_bytes(alone.read_bytes() + f"{odd}\r\n".encode())
        tree = {"place": ["Zürich", "Genève, Ville", "Łódź", "a;b|c,d"]}
        how = {"group": "home", "region": "place", "hierarchy": Hierarchy.from_levels(tree, ["place"]), "max_size": 9}
        before, after = (read(path, **how).counts.open_at_the_privacy_border() for path in (alone, more))
        assert abs(after - before).sum() == 1


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"delimiter": ";;"}, "expected one character"),
        ({"delimiter": '"'}, "expected one character"),
        ({"decimal": "x"}, "choose '.' or ','"),
        ({"encoding": "klingon"}, "unknown encoding"),
        ({"encoding": "rot13"}, "unknown encoding"),
    ],
)
def test_wrong_options_are_refused(option, words):
    with pytest.raises(SpecError, match=words):
        counts(pa.table({"home": ["a"], "place": ["Zürich"]}), **option)
