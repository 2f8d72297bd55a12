"""The page of a plan without a browser: what it holds, what it shows without scripts, and that names stay text."""

import json
import math
import re

import pytest

from tallytree import Budget, Categories, Hierarchy, Prior, one_entity, one_group
from tallytree.planning.grid import predict_grid
from tallytree.planning.report import Alternatives
from tallytree.planning.simulation import Effort, PublicFacts
from tallytree.privacy import Neighbours
from tallytree.publish.about import About
from tallytree.publish.report.plan_page import make_plan_page
from tests.publish.report.worlds import ATTACK, SCRIPT

SPEC = {"data": {"source": "x.csv", "max_size": 4}, "privacy": {"unit": "one_entity", "epsilon": "1"}}


def plan_page(budget, names=("a", "b", "c"), *, unit=None, max_size=4, by=None, mechanism="joint-cumulative", **how):
    tree = Hierarchy.from_levels({"county": list(names)}, ["county"])
    categories = Categories.of(by, by and "group")
    facts = PublicFacts(
        tree.by_category(categories), Neighbours(unit or one_entity(), max_size, False, categories=categories)
    )
    found = predict_grid(
        facts, Prior.of("households", groups=3000), [budget], Alternatives([mechanism]), effort=Effort(2)
    )
    return found, make_plan_page(found, **{"split": "balanced", "spec": SPEC, "title": "Choose", **how}).html


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


def text_of(html):
    body = re.sub(r"<(script|style)[\s>].*?</\1>", " ", html, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.fixture(scope="module")
def usual():
    return plan_page(Budget(epsilon=1), words=About(groups="homes", entities="people"))


def test_without_scripts_the_plan_of_the_spec_is_there(usual):
    found, html = usual
    text = text_of(html)
    rows = found.own.of(budget=found.asked, split="balanced")
    table = re.search(r'<table id="accurate".*?</table>', html, re.S)[0]
    cells = [re.findall(r'<td class="n">(.*?)</td>', row) for row in table.split("<tr>")[2:]]
    for cell, row in zip(cells, rows, strict=True):
        assert cell[0] == f"{math.floor(100 * row.within_5_percent)} %"
        assert cell[1] == f"± {math.ceil(row.reach):,}"
        assert float(cell[2].replace(",", "")) == pytest.approx(row.emd, rel=0.005, abs=0.005)
    assert "Shown here: ε = 1 , all levels (balanced) , sizes up to “ 4 or more ”" in text
    assert "at most 2.72 times as likely" in text
    assert "A suspicion of 10 % becomes at most about 23.2 %" in text
    assert "with 1,000 homes" in text
    assert "“Choose ε”" not in text


def test_all_predictions_of_the_grid_are_in_the_page(usual):
    found, html = usual
    data = data_of(html)
    for split, size in ((one, other) for one in found.own.splits for other in found.reports):
        for at, budget in enumerate(found.budgets):
            for level, row in enumerate(found.reports[size].of(budget=budget, split=split)):
                held = {
                    name: data["values"][split][name][data["sizes"].index(size)][at][level]
                    for name in data["values"][split]
                }
                assert held == {name: getattr(row, name) for name in held}
                assert len(held) == 4
    assert list(data["splits"]) == ["leaves", "balanced", "upper"]
    assert data["spec"] == SPEC


def test_names_are_text_and_never_markup():
    _, html = plan_page(
        Budget(epsilon=1), ["a", ATTACK, SCRIPT], title=f"Plan {ATTACK}", spec={"data": {"source": SCRIPT}}
    )
    assert ATTACK not in html
    assert html.count("</script>") == 2
    assert data_of(html)["spec"]["data"]["source"] == SCRIPT


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(rho="0.1"), "A smaller ρ means more noise and stronger protection. The guide"),
        (Budget(epsilon=1, delta="1e-9"), "may fail with a probability of about δ = 1e-09. The guide “Choose ε”"),
        (Budget(epsilon=8), "may change the probability of a result by a factor of more than a thousand"),
    ],
)
def test_other_budgets_are_put_in_words(budget, words):
    found, html = plan_page(budget)
    assert words in text_of(html)
    assert len(data_of(html)["amounts"]) == len(found.budgets)


def test_a_mechanism_that_measures_only_leaves_has_one_way_to_divide_the_budget():
    _, html = plan_page(Budget(epsilon=1), mechanism="bottom-up")
    data = data_of(html)
    assert list(data["splits"]) == ["leaves"] == [data["own"]["split"]]


def test_with_one_group_as_the_unit_the_words_are_about_groups():
    _, html = plan_page(
        Budget(epsilon=1),
        unit=one_group(),
        mechanism="pgsr-hierarchical-dp",
        words=About(groups="homes", entities="people"),
    )
    assert "Adding or removing one of the homes" in text_of(html)


def test_the_example_of_many_sizes_shows_a_few_of_them():
    _, html = plan_page(Budget(epsilon=1), max_size=50)
    labels = [row["label"] for row in data_of(html)["shapes"][1]]
    assert labels == [*map(str, range(1, 11)), "20", "40", "50 or more"]


def test_levels_by_category_and_over_all_categories_are_shown():
    _, html = plan_page(Budget(epsilon=1), by={"tenure": ["owned", "rented"]}, mechanism="tallytree")
    data = data_of(html)
    assert [level["name"] for level in data["levels"]][-1] == "county, over all"
    assert [level["regions"] for level in data["levels"]] == [1, 2, 6, 3]
    assert "Levels are by category" in text_of(html)
