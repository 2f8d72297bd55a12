"""An account belongs to one privacy unit: the columns that say which group, entity and region a row is of.

Costs add up only for changes of the same unit. One household that changes is one step for a release by household, and
as many steps as it has workers for a release by employer.
"""

import json

import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.command.main import main

TREE = tt.Hierarchy.from_levels(pa.table({"county": ["east", "west"]}), ["county"])
WORKERS = pa.table(
    {
        "household": ["h1", "h1", "h2", "h3", "h3", "h3"],
        "employer": ["e1", "e2", "e1", "e2", "e2", "e3"],
        "trip": ["t1", "t2", "t3", "t4", "t5", "t6"],
        "person": ["p1", "p2", "p3", "p4", "p5", "p6"],
        "county": ["east"] * 3 + ["west"] * 3,
        "office": ["east", "west", "east", "west", "west", "west"],
    }
)


def rows(**columns):
    how = {"group": "household", "region": "county", **columns}
    return tt.read(WORKERS, hierarchy=TREE, max_size=3, name="workers", **how)


def opened(folder, data, unit):
    ledger = tt.Ledger(folder / "ledger.db")
    ledger.open("workers", tt.Budget(epsilon=2), tt.Neighbours.of(data, unit))
    return ledger


def publish(data, unit, ledger):
    return tt.release(data, budget=tt.Budget(epsilon=1), unit=unit, ledger=ledger, intervals="none")


def by_employer():
    """Each employer is in one county here, so that one_group can protect it."""
    table = WORKERS.set_column(4, "county", WORKERS["office"])
    return tt.read(table, group="employer", region="county", hierarchy=TREE, max_size=3, name="workers")


def test_an_account_for_households_does_not_pay_for_a_release_by_employer(tmp_path):
    ledger = opened(tmp_path, rows(), "one_group")
    publish(rows(), "one_group", ledger)
    with pytest.raises(tt.BudgetError, match=r"""(?s)Nothing was spent.*'household'.*'employer'.* = \["household"\]"""):
        publish(by_employer(), "one_group", ledger)
    assert ledger.account("workers").spent == 1


def test_an_account_for_trips_does_not_pay_for_a_release_by_person(tmp_path):
    ledger = opened(tmp_path, rows(entity="trip"), "one_entity")
    publish(rows(entity="trip"), "one_entity", ledger)
    with pytest.raises(tt.BudgetError, match=r"(?s)Nothing was spent.*'trip'.*'person'"):
        publish(rows(entity="person"), "one_entity", ledger)
    assert ledger.account("workers").spent == 1


def test_another_region_column_is_another_relation(tmp_path):
    ledger = opened(tmp_path, rows(on_spanning_group="split"), "one_entity")
    with pytest.raises(tt.BudgetError, match=r"(?s)Nothing was spent.*'county'.*'office'"):
        publish(rows(region="office", on_spanning_group="split"), "one_entity", ledger)
    assert ledger.account("workers").spent == 0


def test_under_one_group_the_entity_column_does_not_matter(tmp_path):
    ledger = opened(tmp_path, rows(entity="trip"), "one_group")
    publish(rows(entity="trip"), "one_group", ledger)
    publish(rows(entity="person"), "one_group", ledger)
    assert ledger.account("workers").left == 0


def test_a_renamed_column_is_charged_where_the_data_holder_states_it_and_the_statement_repeats_it(tmp_path):
    ledger = opened(tmp_path, rows(), "one_group")
    made = publish(by_employer(), tt.one_group(same_unit_as=["household"]), ledger)
    assert ledger.account("workers").spent == 1
    made.save(tmp_path / "out")
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert privacy["neighbours"]["same_unit_as"] == ["household"]
    assert privacy["neighbours"]["columns"] == {"group": "employer", "region": ["county"], "entity": None}
    for text in (privacy["statement"], privacy["neighbours_in_words"]):
        assert "The data holder states" in text
        assert "'employer'" in text
        assert "'household'" in text
    assert tt.verify(tmp_path / "out").ok
    assert tt.Release.load(tmp_path / "out").measurements.neighbours.unit.same_unit_as == ("household",)


def test_a_statement_about_columns_that_the_account_does_not_have_is_refused(tmp_path):
    ledger = opened(tmp_path, rows(), "one_group")
    for wrong in (["home"], ["household", "home"]):
        with pytest.raises(tt.BudgetError, match=r"(?s)'home'.*Nothing was spent"):
            publish(by_employer(), tt.one_group(same_unit_as=wrong), ledger)
    assert ledger.account("workers").spent == 0


def test_an_account_that_records_no_columns_is_not_taken_for_one_that_matches(tmp_path):
    ledger = tt.Ledger(tmp_path / "ledger.db")
    ledger.open("workers", tt.Budget(epsilon=2), tt.Neighbours(tt.one_group(), max_size=3, public_totals=False))
    with pytest.raises(tt.BudgetError, match=r"""(?s)no column.*'household'.*same_unit_as = \["none"\]"""):
        publish(rows(), "one_group", ledger)
    assert ledger.account("workers").spent == 0
    publish(rows(), tt.one_group(same_unit_as=["none"]), ledger)
    assert ledger.account("workers").spent == 1


def test_same_unit_as_is_a_list_of_column_names():
    for wrong in ("household", [1], [""]):
        with pytest.raises(tt.SpecError, match="same_unit_as"):
            tt.one_group(same_unit_as=wrong)


# -------------------------------------------------------------------- the command

SPEC = """
[regions]
table = "regions.csv"
levels = ["county"]

[data]
source = "workers.csv"
name = "workers"
group = "{group}"
region = "county"
max_size = 3
{more}

[privacy]
unit = "{unit}"
epsilon = 1
ledger = "ledger.db"
{stated}

[release]
intervals = "none"
"""
ROWS = "household,employer,trip,person,county\n" + "".join(
    f"h{at},e{at},t{at},p{at},{('east', 'west')[at % 2]}\n" for at in range(6)
)


def typed(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["tallytree", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    shown = capsys.readouterr()
    return code, shown.out + shown.err


@pytest.mark.parametrize(
    ("unit", "before", "after"),
    [
        ("one_group", {"group": "household"}, {"group": "employer"}),
        ("one_entity", {"more": 'entity = "trip"'}, {"more": 'entity = "person"'}),
    ],
)
def test_the_command_refuses_another_column_and_takes_a_statement(tmp_path, monkeypatch, capsys, unit, before, after):
    (tmp_path / "regions.csv").write_text("county\neast\nwest\n")
    (tmp_path / "workers.csv").write_text(ROWS)
    name = before.get("group", "trip")

    def spec(columns, stated=""):
        path = tmp_path / "spec.toml"
        path.write_text(SPEC.format(unit=unit, stated=stated, **{"group": "household", "more": "", **columns}))
        return path

    assert typed(monkeypatch, capsys, "ledger", "open", spec(before), "--epsilon", "2")[0] == 0
    assert typed(monkeypatch, capsys, "release", spec(before), "--out", tmp_path / "first", "--no-report")[0] == 0
    code, shown = typed(monkeypatch, capsys, "release", spec(after), "--out", tmp_path / "second", "--no-report")
    assert code == 3
    assert "Nothing was spent" in shown
    assert f'same_unit_as = ["{name}"]' in shown
    assert tt.Ledger(tmp_path / "ledger.db").account("workers").spent == 1
    stated = spec(after, f'same_unit_as = ["{name}"]')
    assert typed(monkeypatch, capsys, "release", stated, "--out", tmp_path / "second", "--no-report")[0] == 0
    assert "The data holder states" in (tmp_path / "second" / "privacy.json").read_text()


# -------------------------------------------------------------------- synthetic households

SCHEMA = tt.Schema((tt.Attribute("tenure", ("owned", "rented")),), (tt.Attribute("sex", ("f", "m")),), max_persons=3)
HOMES = pa.table({"home": [1, 2, 3], "firm": [1, 2, 3], "tenure": ["owned", "rented", "owned"]})
PERSONS = pa.table({"home": [1, 1, 2, 3], "firm": [3, 2, 2, 1], "sex": ["f", "m", "f", "m"]})


def synthesized(column, unit, ledger):
    homes = tt.read_households(HOMES, PERSONS, schema=SCHEMA, household_id=column, name="homes")
    return tt.synthesize(homes, budget=tt.Budget(rho="0.5"), unit=unit, method="mwem", ledger=ledger)


def test_a_synthesis_by_another_household_column_needs_a_statement(tmp_path):
    ledger = tt.Ledger(tmp_path / "ledger.db")
    relation = tt.HouseholdNeighbours(tt.PrivacyUnit("one_group"), 3, columns={"group": "home"})
    ledger.open("homes", tt.Budget(rho=1), relation)
    synthesized("home", "one_group", ledger)
    with pytest.raises(tt.BudgetError, match=r"(?s)Nothing was spent.*'home'.*'firm'"):
        synthesized("firm", "one_group", ledger)
    assert ledger.account("homes").left == tt.Budget(rho="0.5").amount
    made = synthesized("firm", tt.one_group(same_unit_as=["home"]), ledger)
    made.save(tmp_path / "out")
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert privacy["neighbours"]["same_unit_as"] == ["home"]
    assert "The data holder states" in privacy["statement"]
    assert tt.verify(tmp_path / "out").ok
