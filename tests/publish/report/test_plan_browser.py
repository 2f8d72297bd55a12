"""The page of a plan in a real browser: its numbers are those of new plans, its goals hold, its spec can be used."""

import json
import math
import subprocess
import sys
import tomllib
from fractions import Fraction

import pytest

from tallytree.command.release_spec import ReleaseSpec
from tests.publish.report.browser import IN_BROWSER

pytestmark = IN_BROWSER
SPEC = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "home"
region = "county"
max_size = 5

[privacy]
unit = "one_entity"
epsilon = 0.50
ledger = "our ledger.db"

[release]
title = 'Homes "A" \\ B'

[plan]
prior = "households"
groups = 90_000

[report]
groups = "homes"
"""
COLUMNS = {"within_5_percent": 3, "reach": 4, "emd": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    counties = [f"{state},{state}{number:02d}\n" for state in "ABC" for number in range(12)]
    (folder / "regions.csv").write_text("state,county\n" + "".join(counties))
    (folder / "release.toml").write_text(SPEC)
    return folder


def run(folder, *words):
    """Run `plan` as a user does, in a new process, and return what it prints."""
    command = [sys.executable, "-m", "tallytree", "plan", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def path(folder):
    run(folder, "release.toml", "--mechanism", "tallytree", "--report", "plan.html", "--quiet")
    return folder / "plan.html"


def number(text):
    return float(text.split("\n")[0].replace(",", "").replace("±", "").replace("%", "").strip())


def shown(page, column):
    """The numbers of a column of the table of levels, from the top level down."""
    return [number(text) for text in page.locator(f"#accurate tbody td:nth-child({column})").all_inner_texts()]


def stated(page):
    """What the page states about differences between its numbers and a new plan's, by level."""
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#misses tbody tr").all()]
    parts = [[text.replace("± 1 and", "").replace("±", "") for text in row] for row in rows]
    return [{"within_5_percent": number(one), "reach": number(two), "emd": number(three)} for one, two, three in parts]


def choose(page, amount, split, size):
    page.fill("#amount", str(amount))
    page.select_option("#split", split)
    page.select_option("#size", str(size))


@pytest.mark.parametrize("size", [3, 5])
def test_its_numbers_are_those_of_new_plans(opened, folder, path, size):
    """Three times what the page states for 95 %: six standard deviations where chance alone makes the difference."""
    page, other = opened(path), folder / f"size-{size}.toml"
    other.write_text((folder / "release.toml").read_text().replace("max_size = 5", f"max_size = {size}"))
    amounts = ["0.5", "0.09", "0.6", "1.1"]  # simulated, and between
    words = [word for amount in amounts for word in ("--epsilon", amount)]
    rows = json.loads(run(folder, other.name, *words, "--mechanism", "tallytree", "--json"))["predictions"]
    of = {(row["split"], row["depth"], float(Fraction(row["budget"]["epsilon"]))): row for row in rows}
    assert len(of) == len(amounts) * 9
    for amount in amounts:
        for split in ("leaves", "balanced", "upper"):
            choose(page, amount, split, size)
            tolerance = stated(page)
            for measure, column in COLUMNS.items():
                values = shown(page, column)
                for level, value in enumerate(values):
                    row = of[split, level, float(amount)]
                    allowed = 3 * tolerance[level][measure]
                    if measure == "within_5_percent":
                        assert abs(value - 100 * row[measure]) <= 1 + allowed
                    else:
                        rounding = 3 if measure == "reach" else 0
                        assert abs(value - row[measure]) <= rounding + allowed / 100 * max(row[measure], 1)


def predicted(data, measure, amount, split, size, level):
    """The interpolation that the page states, written again."""
    amounts, rows = data["amounts"], data["values"][split][measure][data["sizes"].index(size)]
    if amount in amounts:
        return rows[amounts.index(amount)][level]
    at = max(place for place, one in enumerate(amounts) if one < amount)
    part = math.log(amount / amounts[at]) / math.log(amounts[at + 1] / amounts[at])
    low, high = rows[at][level], rows[at + 1][level]
    if measure == "within_5_percent":
        return low + part * (high - low)
    return max(low, data["least"]) ** (1 - part) * max(high, data["least"]) ** part


def data_of(page):
    return json.loads(page.evaluate("document.getElementById('data').textContent"))


def test_between_budgets_numbers_are_interpolated_as_stated(opened, path):
    page = opened(path)
    data = data_of(page)
    for amount in (0.0625, 0.07, 0.31, 0.5, 1.9, 3.99, 4):
        choose(page, amount, "upper", 8)
        wanted = {name: [predicted(data, name, amount, "upper", 8, level) for level in range(3)] for name in COLUMNS}
        assert shown(page, 3) == [math.floor(100 * value + 1e-9) for value in wanted["within_5_percent"]]
        assert shown(page, 4) == [math.ceil(value - 1e-9) for value in wanted["reach"]]
        assert shown(page, 5) == pytest.approx(wanted["emd"], rel=0.006, abs=0.006)


def add_goal(page, level, measure, value):
    page.select_option("#goal-level", label=level)
    page.select_option("#goal-measure", measure)
    page.fill("#goal-number", str(value))
    page.click("#add-goal")


def test_goals_find_the_smallest_budget_that_brute_force_finds(opened, path):
    page = opened(path)
    data = data_of(page)
    add_goal(page, "county", "reach", 10)
    add_goal(page, "total", "within_5_percent", 90)
    add_goal(page, "state", "emd", 60)

    def met(amount, split):
        of = [
            predicted(data, name, amount, split, 5, level)
            for name, level in (("reach", 2), ("within_5_percent", 0), ("emd", 1))
        ]
        return math.ceil(of[0] - 1e-9) <= 10 and 100 * of[1] >= 90 and of[2] <= 60

    tried = {float(f"{digits}e{power}") for digits in range(10, 100) for power in range(-4, 3)} | set(data["amounts"])
    tried = sorted(one for one in tried if data["amounts"][0] <= one <= data["amounts"][-1])
    least = min(one for one in tried if any(met(one, split) for split in data["splits"]))
    assert f"meets all goals is {least:g}." in page.locator("#goal-found").inner_text()
    page.click("#use-found")
    assert page.locator("#goal-list strong").all_inner_texts() == ["met"] * 3
    assert float(page.input_value("#amount")) == least
    assert met(least, page.input_value("#split"))
    assert not page.locator("#use-found").is_visible()
    page.fill("#amount", str(data["amounts"][0]))
    assert "not met" in page.locator("#goal-list strong").all_inner_texts()
    page.click("#goal-list button >> nth=0")
    assert page.locator("#goal-list li").count() == 2
    add_goal(page, "county", "reach", 0)
    assert page.locator("#goal-found").inner_text().startswith("No setting of this page meets all goals")
    assert not page.locator("#use-found").is_visible()


def test_the_spec_can_be_taken_and_says_what_was_chosen(opened, folder, path):
    page = opened(path)
    own = tomllib.loads((folder / "release.toml").read_text())
    given = tomllib.loads(page.locator("#toml").inner_text())
    assert given["data"] == own["data"]
    assert given["plan"] == own["plan"]
    assert given["release"] == {"title": 'Homes "A" \\ B', "mechanism": "tallytree", "priority": "balanced"}
    choose(page, 0.83, "leaves", 8)
    with page.expect_download() as taken:
        page.click("#download")
    assert taken.value.suggested_filename == "release.toml"
    taken.value.save_as(folder / "chosen.toml")
    assert (folder / "chosen.toml").read_text() == page.locator("#toml").inner_text()
    chosen = ReleaseSpec.load(folder / "chosen.toml")
    assert float(chosen.budget.epsilon) == 0.83
    assert (chosen.data.max_size, chosen.release.priority, chosen.release.mechanism) == (8, "leaves", "tallytree")
    rows = json.loads(run(folder, "chosen.toml", "--json"))["predictions"]
    of = [row for row in rows if row["split"] == "leaves"]
    for value, row, tolerance in zip(shown(page, 5), of, stated(page), strict=True):
        assert abs(value - row["emd"]) <= 3 * tolerance["emd"] / 100 * max(row["emd"], 1)
    from playwright.sync_api import expect

    page.click("#copy")
    expect(page.locator("#copied")).to_have_text("Copied.")


def test_the_example_has_the_error_bars_of_its_level(opened, path):
    page = opened(path)
    page.select_option("#example-level", label="state")
    assert page.input_value("#example-groups") == "30000"
    page.fill("#example-groups", "1000")
    reach = shown(page, 4)[1]
    rows = [row.locator("td.n").all_inner_texts() for row in page.locator("#sizes tbody tr").all()]
    counts = [number(row[0]) for row in rows]
    assert len(rows) == 5
    assert 995 <= sum(counts) <= 1005
    for count, (_, ends) in zip(counts, rows, strict=True):
        assert [number(end) for end in ends.split(" to ")] == [max(0, count - reach), count + reach]
    assert page.locator("#sizes path.sure").count() == 5


def test_it_is_used_by_keyboard_alone_and_says_what_is_wrong(opened, path):
    page = opened(path)
    page.focus("#slide")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#amount") == "0.51"
    assert page.get_attribute("#slide", "aria-valuetext") == "ε = 0.51"
    page.keyboard.press("Home")
    assert page.locator("#shown-amount").inner_text() == "0.0625"
    page.fill("#amount", "90")
    assert page.locator("#outside").is_visible()
    assert page.locator("#shown-amount").inner_text() == "0.0625"
    page.focus("#reset")
    page.keyboard.press("Enter")
    assert not page.locator("#outside").is_visible()
    assert page.locator("#shown-amount").inner_text() == "0.5"
    page.focus("#split")
    page.keyboard.press("ArrowUp")
    assert page.locator("#shown-split").inner_text() == "the smallest regions (leaves)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_axe_finds_no_serious_fault_and_numbers_are_on_the_screen(opened, path, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(path, width=width, color_scheme=scheme, bypass_csp=True)  # which axe-core needs
    add_goal(page, "county", "reach", 10)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for cell in page.locator("#accurate td.n, #sizes td.n, #misses td.n").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_without_scripts_the_plan_of_the_spec_is_shown(opened, path):
    page, plain = opened(path), opened(path, java_script_enabled=False)
    for column in COLUMNS.values():
        assert shown(plain, column) == shown(page, column)
    for table in ("#sizes", "#misses"):
        assert plain.locator(table).inner_text() == page.locator(table).inner_text()
    for id_ in ("#shares", "#odds", "#beliefs"):
        assert plain.locator(id_).inner_text() == page.locator(id_).inner_text()
    assert not plain.locator("#amount").is_visible()
    assert not plain.locator("#goals").is_visible()
    assert plain.locator("noscript p").is_visible()


def test_on_paper_the_settings_are_words(opened, path):
    page = opened(path)
    choose(page, 0.31, "upper", 3)
    page.emulate_media(media="print")
    assert not page.locator("#amount").is_visible()
    assert (
        "ε = 0.31, the upper levels (upper), sizes up to “3 or more”"
        in page.locator("[role=status]").first.inner_text()
    )
    assert page.locator("#accurate svg.bar").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
