"""Files that are no CSV in UTF-8: what is said of them, in private and in public tables."""

import gzip
import shlex
import subprocess

import pytest

from tallytree import DataError, Hierarchy, SpecError, TallytreeError, read
from tallytree.csv_files import csv_problem

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
        ("home,county\n1,Aachen\n2,Aachen\nSECRET,Köln,7\n", "line 4 of .* has 3 cells, and the first line names 2"),
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
