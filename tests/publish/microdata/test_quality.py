"""How near households come to what was measured: the statement's figures, where they are shown, and the plan's."""

import io
import json
from fractions import Fraction

import pytest
from rich.console import Console

from tallytree import Marginal, synthesize, verify
from tallytree.command.plan_command import synthesis_table
from tallytree.command.screen import synthesis_summary
from tallytree.lab.truth import seeded
from tallytree.planning.households import plan_synthesis
from tallytree.privacy import private_tables
from tallytree.publish.report.synthesis_page import make_synthesis_page
from tallytree.synthesis.marginals import MarginalsOptions
from tallytree.synthesis.table_selection import KINDS, kind_of
from tests.publish.microdata.test_groups import ARGUMENTS, HOMES, SCHEMA

OPTIONS = {"components": 40}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality") / "families"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(private_tables, "cryptographic", lambda _: seeded("quality"))
        synthesis = synthesize(HOMES, **ARGUMENTS, options=OPTIONS)
    synthesis.save(folder)
    return synthesis, folder, json.loads((folder / "privacy.json").read_text())


def shown(part):
    console = Console(file=io.StringIO(), width=200)
    console.print(part)
    return console.file.getvalue()


def test_the_statement_has_the_noise_and_the_error_of_each_kind_of_measured_table(made):
    _, folder, told = made
    rows = {row["kind"]: row for row in told["quality"]}
    assert set(rows) <= set(KINDS)
    assert {"sizes and attributes", "attributes of roles", "for the roles"} <= set(rows)
    tables = {}
    for past in told["rounds"]:
        if past["kind"] == "measure":
            table = Marginal.from_json(past["table"])
            tables.setdefault(table, []).append(1 / float(Fraction(past["scale"])))
    for kind, row in rows.items():
        own = {table: 1 / sum(weights) for table, weights in tables.items() if kind_of(table, SCHEMA) == kind}
        counts = sum(table.cells(SCHEMA) for table in own)
        assert (row["tables"], row["counts"]) == (len(own), counts)
        noise = (sum(table.cells(SCHEMA) * variance for table, variance in own.items()) / counts) ** 0.5
        assert 0.7 * noise <= row["noise"] <= 1.001 * noise  # less where sums of other tables say the same
        assert row["expected_error"] >= row["noise"] * 0.999
        assert row["in_groups"] == [table.describe() for table in own if table.groups]
    assert any(row["in_groups"] for row in rows.values())
    found = verify(folder)
    assert found.ok, found.faults


def test_the_command_ends_with_it_and_the_report_shows_it(made):
    synthesis, folder, told = made
    text = shown(synthesis_summary(synthesis, folder, "id"))
    end = text[text.index("How good it is") :]
    page = make_synthesis_page(folder).html
    for row in told["quality"]:
        assert row["kind"] in end
        assert row["kind"] in page
        for words in row["in_groups"]:
            assert f"measured in groups of values: {words}" in end
            assert words in page
    assert f"{told['structure']['accepted']:.1%} of households kept all rules" in end
    assert "How near the households come to what was measured" in page


def test_a_plan_predicts_each_kinds_error_within_a_factor_of_one_and_a_half(made):
    synthesis, _, told = made
    plan = plan_synthesis(
        synthesis.workload, synthesis.neighbours, synthesis.budget, MarginalsOptions(**OPTIONS), households=400
    )
    assert plan.to_json()["expected_error"] == plan.expected
    text = shown(synthesis_table(plan))
    for row in told["quality"]:
        assert 1 / 1.5 <= row["expected_error"] / plan.expected[row["kind"]] <= 1.5, row
        assert row["kind"] in text
