"""Arguments of the wrong kind, to every public function: a success or an error that says what was expected."""

import math

import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.mechanisms import choose
from tests.oracles.example import made_up

WRONG = (
    None,
    1,
    -1,
    1.5,
    math.nan,
    math.inf,
    True,
    10**400,
    "x",
    "",
    "\x00",
    "\ud800",
    b"x",
    [],
    {},
    (),
    [1],
    ["x"],
    [[]],
)
WRONG += ({"x": 1}, {1: "x"}, {"x": ["y"]}, [("x", "y")], object(), int, tt.one_entity, tt.Budget(epsilon=1))

SIZES = made_up(1, public_totals=False, max_size=3)
TREE, UNIT, BUDGET = SIZES.hierarchy, tt.one_entity(), tt.Budget(epsilon=1)
PLAN = choose("auto", tt.Neighbours.of(SIZES, UNIT)).plan(TREE, BUDGET, UNIT)
ROWS = pa.table({"home": [1, 2], "county": ["a", "b"]})
COUNTIES = tt.Hierarchy.from_levels({"county": ["a", "b"]}, ["county"])
HOME, AGE = tt.Attribute("tenure", ("own", "rent")), tt.Attribute("age", ("young", "old"))
SCHEMA = tt.Schema((HOME,), (AGE,), 3)
HOMES, PEOPLE = pa.table({"id": [1, 2], "tenure": ["own", "rent"]}), pa.table({"id": [1, 2], "age": ["young", "old"]})
CODEBOOK = pa.table({"attribute": ["a", "b"], "level": ["household", "person"], "value": ["x", "y"]})
MARGINAL = tt.Marginal("households", ("tenure",))
PRIVATE = tt.read_households(HOMES, PEOPLE, schema=SCHEMA, household_id="id")
RELEASED = tt.release(SIZES, budget=BUDGET, unit=UNIT, intervals="none")
OTHER = tt.release(SIZES, budget=BUDGET, unit=UNIT, intervals="none")
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
MAP = {"type": "FeatureCollection", "features": [{"type": "Feature", "id": "A", "geometry": SQUARE}]}


def ask(**fields):
    return RELEASED.ask(tt.Query(**fields), typical=False)


def ask_quantile(**fields):
    return RELEASED.ask(tt.Query("quantile", **fields), typical=False)


CALLS = {
    tt.Attribute: {"name": "a", "values": ("x", "y"), "cuts": (1,), "missing": None},
    tt.Budget: {"epsilon": 1, "rho": None, "delta": None},
    tt.Hierarchy.from_edges: {"edges": [("a", "b")], "levels": None},
    tt.Hierarchy.from_levels: {"table": {"s": ["a", "b"]}, "levels": ["s"], "root": "top"},
    tt.Hierarchy.from_regions: {
        "table": {"s": ["a"], "c": ["b"]},
        "leaf": "c",
        "levels": ["s"],
        "name": None,
        "root": "t",
    },
    tt.Category: {"name": "tenure", "values": ("owned", "rented"), "decided_by": "group", "other": None},
    tt.Categories: {"columns": (tt.Category("tenure", ("owned", "rented"), "group"),)},
    tt.HouseholdNeighbours: {"unit": tt.PrivacyUnit("one_group"), "max_persons": 3},
    tt.PrivacyUnit: {"kind": "one_group"},
    tt.Ledger: {"path": "nowhere.db"},
    tt.Marginal: {"of": "households", "household": ("tenure",), "person": (), "size": False, "roles": ()},
    tt.Role: {
        "name": "head",
        "number": "exactly one",
        "attribute": "age",
        "values": ("old",),
        "position": None,
        "household": {},
        "may": {},
    },
    tt.Implies: {"then": {"age": "old"}, "when": {"tenure": ["own"]}, "role": None},
    tt.Below: {"role": "child", "than": "head", "attribute": "age", "by": 0},
    tt.Has: {"role": "head", "household": {"tenure": "own"}, "only": False},
    tt.SizeClass: {"attribute": "tenure", "sizes": {"own": 1}},
    tt.Structure: {"roles": (), "rules": (), "empty": True},
    tt.Neighbours: {"unit": UNIT, "max_size": 3, "public_totals": False, "quantity_bound": 1, "rows_per_entity": 1},
    tt.Neighbours.of: {"group_sizes": SIZES, "unit": UNIT},
    tt.Plan: {"budget": BUDGET, "unit": UNIT, "queries": PLAN.queries},
    tt.Prior.of: {"value": "households", "groups": 10, "weights": None},
    tt.PrivacyUnit: {"kind": "one_entity"},
    tt.Schema: {"household": (HOME,), "person": (AGE,), "max_persons": 3, "structure": None},
    tt.Source: {"url": "duckdb://census.duckdb", "table": None},
    tt.Workload: {"schema": SCHEMA, "marginals": (MARGINAL,), "measured": ()},
    tt.load_measurements: {"path": "nowhere.parquet"},
    tt.measure: {"group_sizes": SIZES, "plan": PLAN, "ledger": None, "noise": "tallytree", "same_data": False},
    tt.plan: {
        "hierarchy": TREE,
        "max_size": 3,
        "budget": BUDGET,
        "unit": UNIT,
        "prior": "households",
        "totals": None,
        "groups": 100,
        "quantity_bound": 1,
        "rows_per_entity": 1,
        "mechanisms": ["pgsr-hierarchical-dp"],
        "splits": None,
        "confidence": 0.9,
        "replicates": 2,
    },
    tt.read: {
        "source": ROWS,
        "group": "home",
        "region": "county",
        "hierarchy": COUNTIES,
        "max_size": 3,
        "name": None,
        "quantity": None,
        "quantity_bound": None,
        "entity": None,
        "rows_per_entity": None,
        "groups": None,
        "groups_are_public": False,
        "on_spanning_group": "error",
        "regions_are_public": False,
        "table": None,
        "groups_table": None,
        "memory_limit": None,
        "by": None,
        "decided_by": None,
        "delimiter": None,
        "decimal": ".",
        "encoding": None,
        "on_unknown_region": "refuse",
        "on_missing": "refuse",
    },
    tt.read_households: {
        "households": HOMES,
        "persons": PEOPLE,
        "schema": SCHEMA,
        "household_id": "id",
        "person_order": None,
        "oversize": "error",
        "on_broken_rules": None,
        "name": None,
        "memory_limit": None,
    },
    tt.release: {
        "group_sizes": SIZES,
        "budget": BUDGET,
        "unit": UNIT,
        "mechanism": "auto",
        "options": None,
        "shares": None,
        "priority": None,
        "prior": None,
        "ledger": None,
        "same_data": False,
        "changed_files": False,
        "noise_source": "tallytree",
        "title": None,
        "intervals": "none",
        "confidence": 0.9,
        "areas": None,
        "about": None,
        "keep": None,
    },
    tt.compare: {
        "old": RELEASED,
        "new": OTHER,
        "questions": ("groups",),
        "level": None,
        "by": None,
        "family_wise": False,
        "more_than": 0.0,
        "concordance": None,
    },
    tt.population_files: {"directory": "nowhere", "out": "out", "form": "activitysim"},
    tt.resume: {"folder": "nowhere", "mechanism": "auto", "options": None, "title": None, "intervals": "none"},
    tt.save_measurements: {"measurements": RELEASED.measurements, "path": "measured.parquet"},
    tt.schema_from_codebook: {"codebook": CODEBOOK, "max_persons": 3},
    tt.schema_from_sample: {
        "households": HOMES,
        "persons": PEOPLE,
        "household_id": "id",
        "sample_is_public": True,
        "max_persons": None,
        "leave_out": (),
        "most_values": 50,
        "bins": 5,
    },
    tt.synthesize: {
        "households": PRIVATE,
        "budget": tt.Budget(rho=1),
        "unit": "one_group",
        "workload": tt.Workload(SCHEMA, (MARGINAL,)),
        "method": "nothing",  # what runs is another test's: this stops at the method, the last that is looked at
        "options": None,
        "number": None,
        "release": None,
        "region": None,
        "by": None,
        "regional": None,
    },
    tt.verify: {"directory": "nowhere", "id": None},
    RELEASED.estimate: {"regions": None, "sizes": None, "confidence": None, "by": None},
    RELEASED.ask: {"query": tt.Query(), "confidence": None, "typical": False},
    RELEASED.ask_each: {"query": tt.Query(), "level": "county", "areas": None, "category": None, "typical": False},
    ask: dict.fromkeys(("regions", "sizes", "by", "of", "to", "to_sizes", "to_by"), None) | {"kind": "ratio"},
    ask_quantile: {"regions": None, "sizes": None, "by": None, "q": 0.9},
    RELEASED.map: {"geojson": MAP, "sizes": None, "kind": None, "by": None, "of": None, "confidence": None},
    RELEASED.export: {"directory": "out", "to": "csvw"},
    RELEASED.save: {"directory": "out", "replace": False},
}
# These start an engine each time, so fewer values are tried.
ENGINES = (tt.read, tt.read_households, tt.schema_from_codebook, tt.schema_from_sample)
SOME = (1.5, "\x00", "\ud800", [["x"]], {"x": 1}, object())
# Values that are results, and errors: nobody makes them by hand.
RESULTS = {
    "Answer",
    "Comparison",
    "GroupSizes",
    "Households",
    "Hierarchy",
    "Measurements",
    "PlanReport",
    "Prior",
    "Release",
    "Synthesis",
}


def test_every_public_function_is_tried():
    tried = {getattr(call, "__name__", "") for call in CALLS} | {"Query"}
    rest = set(tt.__all__) - tried - RESULTS
    assert {name for name in rest if not name.endswith("Error")} == {"one_entity", "one_group"}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_a_wrong_kind_of_argument_gives_an_error_for_people(call, tmp_path, monkeypatch):
    found = []
    for place, name in enumerate(CALLS[call]):
        for number, value in enumerate(SOME if call in ENGINES else WRONG):
            folder = tmp_path / f"{place}-{number}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            try:
                call(**CALLS[call] | {name: value})
            except Exception as error:
                if not isinstance(error, tt.TallytreeError) or len(str(error)) > 1000:
                    found.append(f"{name}={value!r:.40}: {type(error).__name__}: {error!s:.90}")
    assert not found, "\n".join(found)


def test_a_unit_and_a_budget_can_be_given_in_the_words_of_a_spec():
    made = tt.release(SIZES, budget={"epsilon": "0.5"}, unit="one_entity", intervals="none")
    assert made.measurements.budget == tt.Budget(epsilon="0.5")
    assert made.measurements.neighbours.unit == tt.one_entity()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"budget": 1}, r"budget is 1; expected a Budget, such as tallytree.Budget\(epsilon=1\)"),
        ({"unit": tt.one_entity}, r"unit is of type function; expected one_entity\(\)"),
        ({"unit": "one_person"}, "unknown privacy unit 'one_person'"),
        ({"noise_source": "laplace"}, "expected tallytree or opendp"),
        ({"mechanism": "joint-count"}, "unknown mechanism 'joint-count'; did you mean 'joint-counts'"),
        ({"group_sizes": ROWS}, "group_sizes is of type Table; expected a GroupSizes"),
        ({"shares": {"stat": 1, "county": 1, "total": 1}}, "unknown level 'stat'; did you mean 'state'"),
    ],
)
def test_the_error_says_what_was_expected(arguments, expected):
    with pytest.raises(tt.TallytreeError, match=expected):
        tt.release(**{"group_sizes": SIZES, "budget": BUDGET, "unit": UNIT} | arguments)


def test_only_mechanisms_that_can_be_released_are_proposed():
    from tallytree.mechanisms import MECHANISMS

    with pytest.raises(tt.SpecError) as caught:
        tt.release(SIZES, budget=BUDGET, unit=UNIT, mechanism="???")
    told = str(caught.value)
    assert "auto" in told
    assert not [row.name for row in MECHANISMS.values() if row.refused and row.name in told]


@pytest.mark.parametrize("text", ["9" * 5000, ">=" + "9" * 5000, "1-" + "9" * 5000, "0" * 5000, "9" * 5000 + "+"])
def test_a_size_of_five_thousand_digits_is_refused_in_a_line(text):
    with pytest.raises(tt.SpecError) as caught:
        RELEASED.estimate(None, text)
    assert len(str(caught.value)) < 200


SPELLINGS = {  # right calls: function, arguments by place and by name
    "read": (tt.read, (ROWS,), {"group": "home", "region": "county", "hierarchy": COUNTIES, "max_size": 3}),
    "read_households": (tt.read_households, (ROWS, ROWS), {"schema": None, "household_id": "home"}),
    "release": (tt.release, (SIZES,), {"budget": BUDGET, "unit": UNIT}),
    "measure": (tt.measure, (SIZES, PLAN), {}),
    "plan": (tt.plan, (TREE,), {"max_size": 3, "budget": BUDGET, "unit": UNIT, "prior": "households"}),
    "synthesize": (tt.synthesize, (None,), {"budget": BUDGET, "unit": "one_household"}),
    "verify": (tt.verify, ("x",), {"typical": False}),
    "resume": (tt.resume, ("x",), {"mechanism": "auto"}),
    "load_measurements": (tt.load_measurements, ("x",), {}),
    "save_measurements": (tt.save_measurements, (None, "x"), {}),
    "Source": (tt.Source, ("duckdb://x",), {"table": "x"}),
    "Budget": (tt.Budget, (), {"epsilon": 1}),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_misspelt_missing_or_surplus_argument_is_named(name):
    function, given, named = SPELLINGS[name]
    for argument in named:
        with pytest.raises(TypeError, match=f"'{argument}x'") as caught:
            function(*given, **{f"{key}x" if key == argument else key: value for key, value in named.items()})
        assert caught.value.__cause__ is None
    with pytest.raises(TypeError):
        function(*given, *range(20), **named)
    if given:
        with pytest.raises(TypeError, match=r"argument"):
            function(**named)


def test_the_right_spelling_of_an_argument_is_suggested_before_anything_is_read():
    right = {"group": "home", "region": "county", "hierarchy": COUNTIES}
    with pytest.raises(TypeError, match=r"read\(\) needs the argument 'max_size'"):
        tt.read("there is no such file.csv", **right)
    right["hierachy"] = right.pop("hierarchy")
    with pytest.raises(TypeError, match=r"read\(\) has no argument 'hierachy'; did you mean 'hierarchy'\?"):
        tt.read("there is no such file.csv", **right, max_size=3)
