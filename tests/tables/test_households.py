"""Households and persons: read from any format, every problem told at once, cut blindly, counted right, and sealed."""

import copy
import logging
import pickle
import traceback

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from tallytree.core.errors import DataError, SpecError, TallytreeError
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.tables import InputProblems
from tallytree.tables.codebook import schema_from_codebook, schema_from_sample
from tallytree.tables.contingency import HouseholdCodes, check_size, grouped, marginal_counts
from tallytree.tables.households import households_from_codes, read_households
from tests.oracles.households import count, schema_of

SECRET = "SECRET-4711"

SCHEMA = Schema(
    (Attribute("area", ("town", "country")), Attribute("income", ("low", "high", "none"), (1000,), "none")),
    (Attribute("sex", ("1", "2")), Attribute("job", ("yes", "no", "child"), missing="child")),
    3,
)
HOMES = pa.table(
    {
        "home": ["a", "b", "c", "d"],
        "area": ["town", "country", "town", "country"],
        "income": pa.array([999.5, 1000, None, 2e6]),
        "unused": [SECRET] * 4,
    }
)
PEOPLE = pa.table(
    {
        "home": ["d", "a", "b", "a", "d", "d"],
        "sex": pa.array([1, 2, 1, 1, 2, 2], pa.int64()),
        "job": ["yes", None, "no", "yes", "no", ""],
        "line": pa.array([3, 1, 1, 2, 2, 1]),
    }
)


def opened(households):
    return households.codes.open_at_the_privacy_border()


def read(homes=HOMES, people=PEOPLE, schema=SCHEMA, **options):
    return read_households(homes, people, **({"schema": schema, "household_id": "home"} | options))


def members(households):
    """For each household its attributes' codes and its persons', in their order."""
    codes = opened(households)
    rows = []
    for home in range(codes.number):
        inside = slice(codes.starts[home], codes.starts[home + 1])
        people = list(zip(*(column[inside].tolist() for column in codes.person.values()), strict=True))
        rows.append((tuple(int(column[home]) for column in codes.household.values()), people))
    return rows


EXPECTED = [
    ((0, 0), [(1, 2), (0, 0)]),
    ((1, 1), [(0, 1)]),
    ((0, 2), []),
    ((1, 1), [(0, 0), (1, 1), (1, 2)]),
]


# -------------------------------------------------------------------- formats


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow", "mixed"])
def test_every_format_gives_the_same_codes(tmp_path, ending):
    sources = []
    for name, table in (("homes", HOMES), ("people", PEOPLE)):
        path = tmp_path / f"{name}.{'csv' if ending == 'mixed' and name == 'people' else ending}"
        if path.suffix == ".csv":
            csv.write_csv(table, path)
        elif path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            path = table
        sources.append(path)
    households = read(*sources)
    assert members(households) == EXPECTED
    assert households.name == ("homes" if ending in ("parquet", "csv") else None)
    assert (households.fingerprint() is None) == (ending in ("arrow", "mixed"))


def test_codes_take_the_smallest_type():
    codes = opened(read())
    assert {column.dtype for column in (*codes.household.values(), *codes.person.values())} == {np.dtype(np.uint8)}
    many = schema_of({"h": 300}, {}, 1)
    table = pa.table({"home": [1, 2], "h": [299, 0]})
    wide = opened(read(table, pa.table({"home": [1]}), many))
    assert wide.household["h"].dtype == np.uint16
    assert wide.household["h"].tolist() == [299, 0]


def test_ids_of_different_kinds_are_compared_as_text():
    homes = HOMES.set_column(0, "home", pa.array([1, 2, 3, 4]))
    people = PEOPLE.set_column(0, "home", pa.array(["4", "1", "2", "1", "4", "4"]))
    assert members(read(homes, people)) == EXPECTED
    narrow = people.set_column(0, "home", pa.array([4, 1, 2, 1, 4, 4], pa.int8()))
    assert members(read(homes, narrow)) == EXPECTED


def test_numbers_booleans_and_dictionaries_are_categories_too():
    schema = Schema(
        (Attribute("code", ("1", "2.5", "none"), missing="none"), Attribute("own", ("true", "false"))),
        (Attribute("sex", ("f", "m")),),
        1,
    )
    homes = pa.table({"home": [1, 2, 3], "code": [1.0, 2.5, float("nan")], "own": [True, False, True]})
    people = pa.table({"home": [2], "sex": pa.array(["m"]).dictionary_encode()})
    assert members(read(homes, people, schema)) == [((0, 0), []), ((1, 1), [(1,)]), ((2, 0), [])]


def test_an_infinite_number_is_no_value_and_no_empty_cell():
    schema = Schema((Attribute("code", ("1", "none"), missing="none"),), (), 1)
    homes = pa.table({"home": [1, 2, 3, 4], "code": [1.0, float("inf"), None, 1e300]})
    with pytest.raises(InputProblems, match="2 rows have a value that the schema does not list"):
        read(homes, pa.table({"home": [1]}), schema)


def test_ids_may_be_dictionaries():
    for homes in (HOMES, HOMES.set_column(0, "home", HOMES["home"].combine_chunks().dictionary_encode())):
        people = PEOPLE.set_column(0, "home", PEOPLE["home"].combine_chunks().dictionary_encode())
        assert members(read(homes, people)) == EXPECTED


def test_numbers_written_as_text_are_binned(tmp_path):
    (tmp_path / "homes.csv").write_text("home,area,income\na,town, 999.99\nb,town,1e3\nc,town,\n")
    people = pa.table({"home": ["a"], "sex": ["1"], "job": ["no"]})
    assert [home[1] for home, _ in members(read(tmp_path / "homes.csv", people))] == [0, 1, 2]


# -------------------------------------------------------------------- problems


def test_every_problem_is_told_at_once_and_none_with_a_value():
    homes = pa.table(
        {
            "home": ["a", "a", None, "b", ""],
            "area": [SECRET, "town", None, "town", "Town"],
            "income": ["12", SECRET, "", "x", "1"],
        }
    )
    people = pa.table(
        {
            "home": ["a", "z", None, "b", "b", "b", "b", SECRET],
            "sex": ["1", None, "3", "1", "1", "1", "1", "1"],
            "job": ["yes"] * 8,
        }
    )
    with pytest.raises(InputProblems) as caught:
        read(homes, people)
    found = {problem.text.split(":")[0]: problem.count for problem in caught.value.problems}
    assert found == {
        "2 rows have a value that the schema does not list (column 'area' of the households table)": 2,
        "1 row has an empty cell (column 'area' of the households table)": 1,
        "2 rows have something that is not a number (column 'income' of the households table, which has cuts)": 2,
        "1 row has a value that the schema does not list (column 'sex' of the persons table)": 1,
        "1 row has an empty cell (column 'sex' of the persons table)": 1,
        "2 rows have no household (column 'home' of the households table)": 2,
        "1 row has no household (column 'home' of the persons table)": 1,
        "1 household appears more than once in the households table (column 'home')": 1,
        "2 persons live in a household that is not in the households table (column 'home')": 2,
        "1 household has more than max_persons = 3 persons": 1,
    }
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("homes", "people", "options", "message"),
    [
        (HOMES.drop(["area"]), PEOPLE.drop(["sex"]), {}, r"'area' is not in the households(.|\n)*'sex' is not in the"),
        (HOMES.slice(0, 0), PEOPLE, {}, "in a household that is not in the households table"),
        (HOMES, PEOPLE, {"oversize": "drop", "person_order": "nothing"}, "'nothing' is not in the persons"),
        (HOMES.set_column(2, "income", pa.array([[1], [2], [3], [4]])), PEOPLE, {}, "expected a number"),
        (
            HOMES,
            PEOPLE.set_column(3, "line", pa.array(["1", "x", None, "2", "3", "4"])),
            {"oversize": "drop", "person_order": "line"},
            "2 rows have no number in the order of persons",
        ),
    ],
)
def test_problems_of_whole_tables(homes, people, options, message):
    with pytest.raises(InputProblems, match=message):
        read(homes, people, **options)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_tables_without_rows_are_valid(kind):
    def empty(table):
        return pa.table({name: pa.array([], kind) for name in table.column_names})

    for people in (PEOPLE.slice(0, 0), empty(PEOPLE)):
        assert opened(read(HOMES, people)).starts.tolist() == [0] * 5
        for homes in (HOMES.slice(0, 0), empty(HOMES)):
            codes = opened(read(homes, people, oversize="subsample"))
            assert codes.number == 0
            assert marginal_counts(codes, Marginal("households", household=("area",))).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"oversize": "cut"}, "choose from error, drop, subsample"),
        ({"household_id": "area"}, "cannot be both"),
        ({"person_order": "line"}, "leave it out otherwise"),
        ({"oversize": "subsample", "person_order": "line"}, "leave it out otherwise"),
        ({"oversize": "drop", "person_order": "sex"}, "may not depend on attributes"),
        ({"oversize": "drop", "person_order": "home"}, "neither an attribute nor the household id"),
        ({"homes": "nowhere.csv"}, "no file matches"),
        ({"people": 12}, "persons is of type int"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        read(**options)


def test_a_duckdb_file_is_refused_by_name(tmp_path):
    (tmp_path / "homes.duckdb").write_bytes(b"")
    with pytest.raises(SpecError, match="expected Parquet, CSV or an Arrow table"):
        read(tmp_path / "homes.duckdb")


# -------------------------------------------------------------------- cutting


def crowded():
    """Six persons in one home, four in another, shuffled together; each person's number is its attribute."""
    schema = Schema((Attribute("h", ("x",)),), (Attribute("who", tuple(map(str, range(10)))),), 3)
    homes = pa.table({"home": ["a", "b"], "h": ["x", "x"]})
    people = pa.table(
        {
            "home": ["b", "a", "a", "b", "a", "a", "b", "a", "b", "a"],
            "who": [str(number) for number in range(10)],
            "line": [4, 10, 9, 3, 8, 7, 2, 6, 1, 5],
        }
    )
    return homes, people, schema


def test_the_first_persons_in_the_file_are_kept():
    households = read(*crowded(), oversize="drop")
    assert [people for _, people in members(households)] == [[(1,), (2,), (4,)], [(0,), (3,), (6,)]]
    assert households.truncated_by_rule
    assert "the first 3 persons in the order of the file" in households.truncation()


def test_the_first_persons_by_a_column_are_kept():
    homes, people, schema = crowded()
    for column in (people["line"], people["line"].cast(pa.string())):
        households = read(homes, people.set_column(2, "line", column), schema, oversize="drop", person_order="line")
        assert [people for _, people in members(households)] == [[(5,), (7,), (9,)], [(3,), (6,), (8,)]]
    assert "column 'line'" in households.truncation()


def test_persons_drawn_at_random_are_kept_alike_often():
    _, people, schema = crowded()
    number = 400
    copies = [f"{home}{copy}" for copy in range(number) for home in "ab"]
    many_homes = pa.table({"home": copies, "h": ["x"] * len(copies)})
    many_people = pa.table(
        {
            "home": [f"{home}{copy}" for copy in range(number) for home in people["home"].to_pylist()],
            "who": people["who"].to_pylist() * number,
        }
    )
    households = read(many_homes, many_people, schema, oversize="subsample")
    assert {len(people) for _, people in members(households)} == {3}
    kept = np.bincount(opened(households).person["who"], minlength=10)
    in_a = np.array([home == "a" for home in people["home"].to_pylist()])
    assert kept[in_a].sum() == kept[~in_a].sum() == 3 * number
    # Binomial with p = 1/2 or 3/4: six standard deviations are left once in more than 10^8 draws, times ten cells.
    assert np.all(np.abs(kept[in_a] - number / 2) < 6 * np.sqrt(number / 4))
    assert np.all(np.abs(kept[~in_a] - number * 3 / 4) < 6 * np.sqrt(number * 3 / 16))
    assert "chosen at random" in households.truncation()


def test_which_persons_are_kept_does_not_depend_on_attributes():
    homes, people, schema = crowded()
    changed = people.set_column(1, "who", pa.array([str(9 - number) for number in range(10)]))
    for options in ({"oversize": "drop"}, {"oversize": "drop", "person_order": "line"}):
        one = opened(read(homes, people, schema, **options)).person["who"]
        other = opened(read(homes, changed, schema, **options)).person["who"]
        assert one.tolist() == [9 - code for code in other]


def test_the_order_of_a_large_file_is_kept(tmp_path):
    number = 300_000  # several row groups, which the engine may read in any order
    homes = pa.table({"home": np.arange(2), "h": ["x", "x"]})
    order = np.arange(number)
    people = pa.table({"home": order % 2, "who": np.where(order < 6, order, 9)})
    pq.write_table(people, tmp_path / "people.parquet", row_group_size=10_000)
    schema = Schema((Attribute("h", ("x",)),), (Attribute("who", tuple(map(str, range(10)))),), 3)
    households = read(homes, tmp_path / "people.parquet", schema, oversize="drop")
    assert [people for _, people in members(households)] == [[(0,), (2,), (4,)], [(1,), (3,), (5,)]]


# -------------------------------------------------------------------- counting


@st.composite
def populations(draw):
    most = draw(st.integers(1, 4))
    homes = {name: draw(st.integers(1, 3)) for name in draw(st.sampled_from(["", "g", "gh"]))}
    people = {name: draw(st.integers(1, 3)) for name in draw(st.sampled_from(["", "p", "pq", "pqr"]))}
    schema = schema_of(homes or {"g": 2}, people, most)
    home = st.tuples(*(st.integers(0, attribute.codes - 1) for attribute in schema.household))
    person = st.tuples(*(st.integers(0, attribute.codes - 1) for attribute in schema.person))
    return schema, tuple(draw(st.lists(st.tuples(home, st.lists(person, max_size=most).map(tuple)), max_size=8)))


@settings(max_examples=80)
@given(populations(), st.randoms(use_true_random=False))
def test_every_table_is_counted_as_by_hand(population, chance):
    schema, data = population
    rows = [(home, person) for home, (_, persons) in enumerate(data) for person in persons]
    chance.shuffle(rows)
    households = households_from_codes(
        schema,
        {each.name: np.array([home[at] for home, _ in data], int) for at, each in enumerate(schema.household)},
        {each.name: np.array([person[at] for _, person in rows], int) for at, each in enumerate(schema.person)},
        np.array([home for home, _ in rows], int),
        len(data),
    )
    homes = [attribute.name for attribute in schema.household]
    people = [attribute.name for attribute in schema.person]
    for of in ("households", "persons"):
        for size in (False, True):
            for household in ((), tuple(homes), tuple(homes[::-1][:1])):
                for person in ((), tuple(people), tuple(people[:1])):
                    marginal = Marginal(of, household, person, size)
                    counts = marginal_counts(opened(households), marginal)
                    assert counts.dtype == np.int64
                    assert np.array_equal(counts, count(data, marginal, schema)), marginal


def test_codes_that_do_not_fit_are_refused():
    schema = schema_of({"h": 2}, {"p": 2}, 1)
    right = {"household": {"h": [0, 1]}, "person": {"p": [1]}, "home": [1], "number": 2}
    households_from_codes(schema, **right)
    for wrong in (
        {"household": {"h": [0, 2]}},
        {"household": {"h": [0]}},
        {"household": {}},
        {"person": {"p": [-1]}},
        {"person": {"p": [0.5]}},
        {"person": {"p": [0, 1]}, "home": [1, 1]},
        {"home": [2]},
        {"home": [-1]},
    ):
        with pytest.raises(DataError):
            households_from_codes(schema, **(right | wrong))


def test_a_table_too_large_to_count_is_refused():
    schema = schema_of({"h": 20_000}, {"p": 20_000}, 1)
    with pytest.raises(SpecError, match="400,000,000 cells"):
        check_size(Marginal("persons", ("h",), ("p",)), schema)


# -------------------------------------------------------------------- secrets


def test_households_are_sealed():
    households = read(name="homes")
    assert repr(households).endswith("at most 3 persons; private)")
    assert "4" not in repr(households)
    for private in (households, households.codes, opened(households)):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                use(private)
        assert "town" not in repr(private) + str(private)
    for use in (np.asarray, list, len, bool, str.format):
        with pytest.raises(TypeError):
            use(households.codes)


@pytest.mark.parametrize(
    "broken",
    [
        b'home,sex,job\na,1,yes\n"' + SECRET.encode() + b",1,yes\nb,2\n",
        b"home,sex,job\na,1,yes\n" + SECRET.encode() + b"\n",
        b"home,sex,job\na,1,yes\n" + SECRET.encode() + b",1,1,1,1\n",
        b"home,sex,job\na,1,yes\n" + SECRET.encode() + b"\xff\xfe,1,yes\n",
        b"home,sex,job\n" + SECRET.encode() + b",1,yes\na," + SECRET.encode() + b",yes\n",
    ],
    ids=["unterminated quote", "short row", "long row", "invalid UTF-8", "values"],
)
def test_a_broken_file_gives_no_row_away(tmp_path, capfd, caplog, broken):
    (tmp_path / "people.csv").write_bytes(broken)
    with caplog.at_level(logging.DEBUG), pytest.raises(TallytreeError) as caught:
        read(HOMES, tmp_path / "people.csv")
    error = caught.value
    shown = [str(error), repr(error), repr(error.args), "".join(traceback.format_exception(error)), caplog.text]
    assert all(SECRET not in text for text in [*shown, *capfd.readouterr()])
    assert error.__cause__ is None
    assert error.__context__ is None


# -------------------------------------------------------------------- schemas from what is public


def test_a_schema_from_a_codebook(tmp_path):
    (tmp_path / "codebook.csv").write_text(
        "attribute,level,value,cut\narea,household,town,\narea,household,country,\n"
        "income,household,low,\nincome,household,high,1000\nincome,household,none,missing\n"
        "sex,person,1,\nsex,person,2,\njob,person,yes,\njob,person,no,\njob,person,child,missing\n"
    )
    assert schema_from_codebook(tmp_path / "codebook.csv", max_persons=3) == SCHEMA
    table = csv.read_csv(tmp_path / "codebook.csv")
    assert schema_from_codebook(table, max_persons=3) == SCHEMA


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"attribute": ["a"], "value": ["x"]}, "has no column level"),
        ({"attribute": ["a"], "level": ["street"], "value": ["x"]}, "row 1 of the codebook"),
        ({"attribute": ["a"], "level": ["person"], "value": pa.array([None], pa.string())}, "row 1 of the codebook"),
        ({"attribute": ["a", "a"], "level": ["person"] * 2, "value": ["x", "y"], "cut": ["1", "2"]}, "but the first"),
        ({"attribute": ["a", "a"], "level": ["person"] * 2, "value": ["x", "y"], "cut": ["", "ten"]}, "not a number"),
        ({"attribute": ["a", "a"], "level": ["person"] * 2, "value": ["x", "y"], "cut": ["missing"] * 2}, "several"),
    ],
)
def test_a_codebook_that_says_too_little_is_refused(rows, message):
    with pytest.raises(SpecError, match=message):
        schema_from_codebook(pa.table(rows), max_persons=3)


def test_a_schema_from_a_sample_only_if_it_is_declared_public():
    with pytest.raises(SpecError, match="every value in it is published"):
        schema_from_sample(HOMES, PEOPLE, household_id="home")
    for declared in (1, "yes"):
        with pytest.raises(SpecError, match="only if they are public"):
            schema_from_sample(HOMES, PEOPLE, household_id="home", sample_is_public=declared)
    schema = schema_from_sample(
        HOMES, PEOPLE, household_id="home", sample_is_public=True, leave_out=["unused", "line"], most_values=2, bins=2
    )
    income = schema.attribute("income")
    assert (income.values, income.cuts, income.missing) == (
        ("below 1000", "1000 or more", "missing"),
        (1000.0,),
        "missing",
    )
    assert schema.max_persons == 3
    assert schema.attribute("sex").values == ("1", "2")
    values = [schema.attribute("job").values, schema.attribute("area").values]
    assert values == [("no", "yes", "missing"), ("country", "town")]
    homes = HOMES.append_column("street", pa.array(["u", "v", "w", "x"]))
    with pytest.raises(SpecError, match="4 different values: leave it out"):
        schema_from_sample(homes, PEOPLE, household_id="home", sample_is_public=True, most_values=2)


# -------------------------------------------------------------------- public tables


@pytest.mark.parametrize(
    ("name", "homes", "people", "order"),
    [
        ("oregon_2000_pums", ["area", "unittype", "bldgsz", "hinc"], ["age", "wrklyr", "inctot"], "pnum"),
        ("atlanta_arc", ["maz", "workers", "hincp", "veh", "hht", "bld"], ["agep", "sex", "esr", "schl"], "sporder"),
    ],
)
def test_public_tables_are_read_whole(public_file, name, homes, people, order):
    paths = [public_file(f"{name}_{table}.parquet") for table in ("households", "persons")]
    tables = [pq.read_table(path) for path in paths]
    left_out = [[column for column in table.column_names if column not in (*homes, *people)] for table in tables]
    schema = schema_from_sample(
        *paths, household_id="household_id", sample_is_public=True, leave_out=[*left_out[0], *left_out[1]]
    )
    stated = tables[0]["persons"].to_numpy()
    assert schema.max_persons == stated.max()
    households = read_households(*paths, schema=schema, household_id="household_id")
    codes = opened(households)
    assert np.array_equal(np.diff(codes.starts), stated)
    sizes = marginal_counts(codes, Marginal("households", size=True))
    assert np.array_equal(sizes, np.bincount(stated, minlength=schema.max_persons + 1))
    column = people[0]
    attribute = schema.attribute(column)
    ages = tables[1][column].to_numpy()
    assert attribute.cuts is not None
    expected = np.bincount(np.searchsorted(attribute.cuts, ages, side="right"), minlength=attribute.codes)
    assert np.array_equal(marginal_counts(codes, Marginal("persons", (), (column,))), expected)
    smaller = Schema(schema.household, schema.person, 4)
    with pytest.raises(InputProblems, match=f"{np.count_nonzero(stated > 4):,} households have more than"):
        read_households(*paths, schema=smaller, household_id="household_id")
    for options in ({"oversize": "drop", "person_order": order}, {"oversize": "drop"}, {"oversize": "subsample"}):
        cut = read_households(*paths, schema=smaller, household_id="household_id", **options)
        assert np.array_equal(np.diff(opened(cut).starts), np.minimum(stated, 4))


def test_grouping_keeps_persons_in_their_order():
    schema = schema_of({"h": 1}, {"p": 9}, 3)
    codes = grouped(schema, {"h": np.zeros(2, int)}, {"p": np.array([4, 3, 2, 1])}, np.array([1, 0, 1, 0]), 2)
    assert isinstance(codes, HouseholdCodes)
    assert codes.person["p"].tolist() == [3, 1, 4, 2]
