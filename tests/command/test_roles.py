"""Roles and rules from a spec to verified files: counted for the data holder, kept when cut, planned, and checked."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tallytree as tt
from tallytree.command import progress_bar
from tallytree.command.main import app
from tallytree.command.progress_bar import _Log
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.progress import Stage
from tallytree.tables.problems import InputProblems

SPEC = """
[households]
source = "homes.csv"
id = "home"
name = "homes"

[persons]
source = "people.csv"
order = "line"

[schema]
max_persons = 3
oversize = "drop"

[schema.household]
kind = ["couple", "other kind"]

[schema.person]
relation = ["head", "spouse", "child"]
"own age" = { cuts = [18, 40] }

[roles.head]
attribute = "relation"
values = ["head"]
number = "exactly one"

[roles.spouse]
attribute = "relation"
values = ["spouse"]
number = "at most one"

[roles.child]
attribute = "relation"
values = ["child"]

[rules]
empty = false
ON_BROKEN
below = [{ role = "child", than = "head", attribute = "own age" }]
has = [{ role = "spouse", household = { kind = "couple" }, only = true }]

[privacy]
epsilon = 4
delta = 1e-6
ledger = false

[workload]
k = 2
tables = [{ attributes = ["head.own age", "spouse.own age"], measure = true }]

[synthesis]
options = { rounds = 2, components = 8, steps = 4, last_steps = 6 }
"""
KEEP = 'on_broken_rules = "keep"'


@pytest.fixture
def folder(tmp_path):
    """Sixty households; one of them has a child older than the head, two have five persons, spouse and head last."""
    homes, people = ["home,kind"], ["home,line,relation,own age"]
    for home in range(60):
        couple = home % 2 == 0
        homes.append(f"{home},{'couple' if couple else 'other kind'}")
        members = ["child,5"] * (4 if home in (4, 5) else home % 2) + (["spouse,38"] if couple else []) + ["head,41"]
        if home == 7:
            members = ["child,50", "head,30"]
        people += [f"{home},{line},{member}" for line, member in enumerate(members)]
    (tmp_path / "homes.csv").write_text("\n".join(homes) + "\n", encoding="utf-8")
    (tmp_path / "people.csv").write_text("\n".join(people) + "\n", encoding="utf-8")
    (tmp_path / "keep.toml").write_text(SPEC.replace("ON_BROKEN", KEEP), encoding="utf-8")
    (tmp_path / "unsaid.toml").write_text(SPEC.replace("ON_BROKEN", ""), encoding="utf-8")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_households_that_break_a_rule_are_counted_and_refused_unless_they_are_to_be_kept(folder):
    spec = SynthesisSpec.load(folder / "unsaid.toml")
    with pytest.raises(InputProblems, match=r"1 household breaks a rule .own age of child is not above that of head."):
        spec.read()
    kept = SynthesisSpec.load(folder / "keep.toml")
    assert kept.read().on_broken_rules == "keep"
    told = kept.left_out()
    assert "1 household breaks a rule" in told["rule 1"]
    assert "max_persons" in told


def test_head_and_spouse_stay_when_a_household_is_cut(folder):
    spec = SynthesisSpec.load(folder / "keep.toml")
    households = spec.read()
    # Were the last persons lost, households 4 and 5 would have no head, and refusing would find them.
    with pytest.raises(InputProblems) as found:
        spec._read("refuse")
    assert [problem.count for problem in found.value.problems] == [1]
    assert "head and spouse were kept, as the schema defines them" in households.truncation()


def test_a_synthesis_keeps_the_rules_and_verify_finds_files_that_do_not(folder):
    made = run("synthesize", folder / "keep.toml", "--out", folder / "made")
    assert made.exit_code == 0, made.output
    assert "kept by every household" in made.output
    assert tt.verify(folder / "made").ok
    statement = json.loads((folder / "made" / "privacy.json").read_text(encoding="utf-8"))
    assert statement["structure"]["broken_in_the_data"].startswith("kept")
    assert 0 <= statement["structure"]["accepted"] <= 1
    measured = [tt.Marginal.from_json(table).describe() for table in statement["measured"]]
    assert "households by own age of head, own age of spouse" in measured
    assert any(
        words.startswith("persons other than head by own age of head by relation and own age") for words in measured
    )
    questions = (folder / "made" / "questions.csv").read_text(encoding="utf-8")
    assert '"head.own age"' in questions.replace('""', '"')

    forged = folder / "forged"
    shutil.copytree(folder / "made", forged)
    persons = pq.read_table(forged / "persons.parquet")
    labels = persons["relation"].cast(pa.string()).to_pylist()
    labels[labels.index("head")] = "child"
    column = pa.array(labels).dictionary_encode().cast(persons.schema.field("relation").type)
    place = persons.column_names.index("relation")
    pq.write_table(persons.set_column(place, persons.schema.field(place), column), forged / "persons.parquet")
    checks = {check.what: check for check in tt.verify(forged).checks}
    broken = checks["households satisfy the schema's edit rules and have the released numbers by region and size"]
    assert any("exactly one head" in fault for fault in broken.faults)


def test_a_plan_says_which_tables_are_measured_and_why(folder):
    plain = run("plan", folder / "keep.toml")
    assert plain.exit_code == 0, plain.output
    for words in ("asked for", "for the roles", "sizes and attributes", "Nothing was spent"):
        assert words in plain.output
    as_json = run("plan", folder / "keep.toml", "--groups", "60", "--json")
    [plan] = json.loads(as_json.output)
    asked = [row for row in plan["measured"] if row["why"] == "asked for"]
    assert [row["words"] for row in asked] == ["households by own age of head, own age of spouse"]
    assert all(row["noise"] > 0 and row["noise_as_part"] > 0 for row in plan["measured"])
    assert run("plan", folder / "keep.toml", "--prior", "households").exit_code != 0


def test_what_is_planned_is_what_is_measured(folder):
    spec = SynthesisSpec.load(folder / "keep.toml")
    [plan] = json.loads(run("plan", folder / "keep.toml", "--json").output)
    schema = spec.public_schema()
    made = tt.synthesize(spec.read(), budget=spec.budget, workload=spec.chosen_workload(schema), options=spec.options)
    tables = [past for past in made.rounds if past.request["kind"] == "measure"]
    ungrouped = [{name: part for name, part in past.request["table"].items() if name != "groups"} for past in tables]
    rounds = [(table, str(past.cost)) for table, past in zip(ungrouped, tables, strict=True)]
    planned = [(row["table"], row["rho"]) for row in plan["measured"]]
    assert rounds[: len(planned)] == planned


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('role = "child"', 'role = "chidl"'), "did you mean 'child'"),
        (('kind = "couple"', 'kind = "couples"'), "did you mean 'couple'"),
        (('number = "exactly one"', 'number = "one"'), "exactly one"),
        (("empty = false", "emtpy = false"), "empty"),
        (('"head.own age"', '"child.own age"'), "may be several"),
        (("empty = false", 'empty = false\nimplies = [{ then = { kind = "couple" } }]\nsize_class = '
          '[{ attribute = "kind", sizes = { couple = 1 } }]'), "contradict"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_spec_is_said(folder, change, message):
    text = (folder / "keep.toml").read_text(encoding="utf-8")
    assert change[0] in text
    (folder / "wrong.toml").write_text(text.replace(*change), encoding="utf-8")

    def checked():
        spec = SynthesisSpec.load(folder / "wrong.toml")
        return spec.chosen_workload(spec.public_schema())

    with pytest.raises(tt.SpecError, match=message):
        checked()


def test_a_run_with_tables_by_role_that_was_stopped_goes_on_and_draws_nothing_twice(folder):
    spec = SynthesisSpec.load(folder / "keep.toml")
    schema = spec.public_schema()
    workload = spec.chosen_workload(schema)
    given = {"budget": spec.budget, "workload": workload, "options": spec.options, "folder": folder / "run"}

    def stop(stage):
        if stage.doing == "fitting" and stage.about.endswith("tables at once"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tt.synthesize(spec.read(), progress=stop, **given)
    kept = [json.loads(line) for line in (folder / "run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    done = tt.synthesize(spec.read(), resume=True, **given)
    assert sum(past.cost for past in done.rounds) == spec.budget.rho
    drawn = [line["result"]["values"] for line in kept if "values" in (line.get("result") or {})]
    assert len(drawn) > 8
    again = [past.result["values"] for past in done.rounds if "values" in past.result]
    assert again[: len(drawn)] == drawn


def test_a_log_has_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "BETWEEN_LINES", 10)
    now = [0.0]
    log = _Log(lambda: now[0])
    for second in range(35):
        now[0] = float(second)
        log.show(Stage("fitting", second, 100, "a\x1b[31mtable"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[1] for line in lines] == ["10 of 100", "20 of 100", "30 of 100"]
    assert "\x1b" not in lines[0]


def test_old_specs_make_schemas_without_structure(folder):
    text = (folder / "keep.toml").read_text(encoding="utf-8")
    start, stop = text.index("[roles.head]"), text.index("[privacy]")
    plain = (text[:start] + text[stop:]).replace('tables = [{ attributes = ["head.own age", "spouse.own age"]', "# ")
    (folder / "old.toml").write_text(plain, encoding="utf-8")
    spec = SynthesisSpec.load(Path(folder / "old.toml"))
    assert spec.public_schema().structure is None
    assert spec.chosen_workload(spec.public_schema()).measured == ()
