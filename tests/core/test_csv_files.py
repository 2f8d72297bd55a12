"""Files that are no CSV in UTF-8: what is said of them, in private and in public tables."""

import gzip
import shlex
import subprocess

import pytest

from tallytree import DataError, Hierarchy, SpecError, TallytreeError, read
from tallytree.core.csv_files import csv_problem

TREE = Hierarchy.from_levels({"county": ["Köln", "Aachen"]}, ["county"])
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}
LINES = "home,county\n1,Aachen\nSECRET,Köln\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("zipped", [False, True])
def test_microdata_in_another_encoding_say_so_and_how_to_convert(encoding, zipped, tmp_path):
    path = tmp_path / ("my people.csv.gz" if zipped else "my people.csv")
    content = LINES.encode(encoding)
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(TallytreeError, match="is not UTF-8") as caught:
        read(path, **OPTIONS)
    assert "SECRET" not in str(caught.value)
    if encoding == "latin-1":
        assert "line 3 has a byte" in str(caught.value)
    command = str(caught.value).rpartition("what it is: ")[2]
    subprocess.run(command, shell=True, check=True)
    better = shlex.split(command)[-1]
    assert read(better, **OPTIONS).hierarchy is TREE


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_a_public_table_in_another_encoding_says_so(encoding, tmp_path):
    path = tmp_path / "regions.csv"
    path.write_bytes("county\nKöln\nAachen\n".encode(encoding))
    with pytest.raises(SpecError, match="is not UTF-8"):
        Hierarchy.from_levels(path, ["county"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("home,county\n1,Aachen\n2,Aachen\nSECRET,Köln,7\n", "line 4 of .* has 3 cells, but the first line names 2"),
        ('home,county\n"1\n",Aachen\nSECRET\n', "line 4 of .* has 1 cells"),
        ('home,county\n1,Aachen\n2,"SECRET\n', "begins in line 3 of .* cannot be read"),
    ],
)
def test_a_broken_line_is_named_and_never_quoted(content, said, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=said) as caught:
        read(path, **OPTIONS)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(SpecError, match=said):
        Hierarchy.from_levels(path, ["county"])


def test_a_broken_groups_table_is_named_too(tmp_path):
    people, homes = tmp_path / "people.csv", tmp_path / "homes.csv"
    people.write_text("home\n1\n", encoding="utf-8")
    homes.write_text("home,county\n1,Aachen\n2,Aachen,9\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3 of .*homes.csv has 3 cells"):
        read(people, groups=homes, groups_are_public=True, **OPTIONS)


def test_a_sound_file_has_no_problem(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('\ufeffhome,county\n1,"Aa\nchen"\n\n2,Köln\n', encoding="utf-8")
    assert csv_problem(str(path)) is None


def test_a_columns_name_that_is_nearly_right_gets_a_hint_and_cells_of_a_headless_file_do_not(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("home,County\n1,Aachen\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"column 'county' is not in the microdata \(did you mean 'County'\?\)"):
        read(path, **OPTIONS)
    path.write_text("SECRET,Aachen\n2,Aachen\n", encoding="utf-8")
    with pytest.raises(DataError, match="are not in the microdata: correct") as caught:
        read(path, **OPTIONS)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "lines", [["LONG"], ["1,Aachen,x", "LONG"], ["LONG", "1,Aachen,x"]], ids=["only", "last", "first"]
)
def test_a_line_that_is_too_long_is_refused_with_the_limit(lines, zipped, tmp_path):
    for length in (3_000_000, 40_000_000):
        text = (
            "\n".join(["home,county,note", *lines, ""]).replace("LONG", f"2,Köln,{'SECRET' * (length // 6)}").encode()
        )
        path = tmp_path / ("people.csv.gz" if zipped else "people.csv")
        path.write_bytes(gzip.compress(text, 1) if zipped else text)
        line = 2 + lines.index("LONG")
        with pytest.raises(DataError, match=f"line {line} of .* is longer than 2,097,152 bytes") as caught:
            read(path, **OPTIONS)
        assert "SECRET" not in str(caught.value)


def test_a_cell_of_many_lines_that_is_too_long_is_refused_with_the_limit(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('home,county,note\n1,Aachen,"' + "SECRET\n" * 400_000 + '"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"begins in line 2 of .* more than 2,097,152 characters") as caught:
        read(path, **OPTIONS)
    assert "SECRET" not in str(caught.value)


def test_a_long_line_within_the_limit_is_read(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(f"home,county,note\n1,Aachen,x\n2,Köln,{'x' * 2_000_000}\n", encoding="utf-8")
    assert read(path, **OPTIONS).counts.open_at_the_privacy_border().sum() == 2
