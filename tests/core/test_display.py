"""Values at a prompt and in a notebook: short, complete, and names as text whatever they hold."""

import dataclasses
import importlib
import pkgutil
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

import tallytree as tt
from tallytree.core import display
from tallytree.core.display import table
from tallytree.core.names import briefly, visible
from tallytree.lab.results import Results
from tallytree.lab.truth import Truth
from tallytree.privacy.ledger import Expense
from tallytree.publish.verify import Check, Verification
from tests.synthesis.made_up import made_up as made_up_households

NASTY = '<script>alert("1")</script>\x1b[31m\n&\u202e'
LEAVES = ["a", f"b{NASTY}", "c"]
MOST_LETTERS = 50_000  # of HTML
VOID = {"meta", "br", "hr", "rect", "path", "line"}


def truth(sizes=5):
    tree = tt.Hierarchy.from_levels({"state": ["A", "A", "B"], f"county{NASTY}": LEAVES}, ["state", f"county{NASTY}"])
    counts = np.zeros((3, sizes), dtype=np.int64)
    counts[:, :5] = [[210, 240, 120, 70, 10], [140, 150, 90, 30, 0], [400, 310, 170, 90, 20]]
    return Truth(NASTY, tree, counts, public_totals=False)


def released(sizes=5, **options):
    how = {"budget": tt.Budget(epsilon=1), "unit": tt.one_entity(), "title": NASTY, **options}
    return tt.release(truth(sizes).group_sizes(), **how)


def a_ledger(folder):
    ledger = tt.Ledger(folder / "ledger.db")
    neighbours = tt.Neighbours(tt.one_entity(), 5, False)
    ledger.open(NASTY, tt.Budget(epsilon=3), neighbours)
    ledger.reserve(Expense(NASTY, tt.Budget(epsilon="1/3"), neighbours))
    ledger.reserve(Expense(NASTY, tt.Budget(epsilon=1), neighbours))
    return ledger


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    release = released()
    many = released(20_000, intervals="none")
    release.save(folder / "r")
    report = tt.plan(
        release.hierarchy,
        max_size=5,
        budget=[tt.Budget(epsilon=1), tt.Budget(epsilon=2, delta="1e-9")],
        unit=tt.one_entity(),
        prior=folder / "r",
        replicates=2,
        mechanisms=["joint-cumulative", "bottom-up"],
    )
    broken = Verification((Check("whole", ()), Check("adds up", tuple(f"{NASTY}{n}" for n in range(2000)))), "0" * 64)
    synthesis = tt.synthesize(
        made_up_households(),
        unit="one_group",
        budget=tt.Budget(rho="0.5"),
        method="mwem",
        options={"rounds": 3, "empty": True},
        title=NASTY,
    )
    return {
        "release": release,
        "release of many sizes": many,
        "loaded release": tt.Release.load(folder / "r"),
        "plan report": report,
        "verification": tt.verify(folder / "r"),
        "broken verification": broken,
        "synthesis": synthesis,
        "account": a_ledger(folder).account(NASTY),
        "answer": release.estimate(LEAVES[1], ">=2", typical=False),
    }


NAMES = [
    "release",
    "release of many sizes",
    "loaded release",
    "plan report",
    "verification",
    "broken verification",
    "synthesis",
    "account",
    "answer",
]


class Page(HTMLParser):
    """The elements of a page, all of them closed, and its text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


# -------------------------------------------------------------------- in a notebook


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_a_small_page_with_a_table_and_names_as_text(values, name):
    html = values[name]._repr_html_()
    page = Page(html)
    assert "table" in page.seen
    assert set(page.seen) <= {"div", "strong", "p", "table", "thead", "tbody", "tr", "th", "td"} | {
        "svg",
        "g",
        "path",
        "rect",
        "text",
        "line",
    }
    assert all(letter.isprintable() for letter in html)
    assert len(html) < MOST_LETTERS
    if "verification" not in name and name != "answer":
        assert "svg" in page.seen
    if name in ("release", "synthesis", "account", "answer"):
        assert visible(NASTY) in "".join(page.text)


@pytest.mark.parametrize("name", NAMES)
def test_without_the_extra_for_plots_the_table_is_still_there(values, name, monkeypatch):
    monkeypatch.setattr(display, "available", lambda: False)
    page = Page(values[name]._repr_html_())
    assert "table" in page.seen
    assert "svg" not in page.seen


def test_a_page_of_a_release_has_its_counts_intervals_and_id(values):
    release = values["loaded release"]
    text = " ".join(Page(release._repr_html_()).text)
    for count in release.counts[0]:
        assert f"{count:,}" in text
    assert release.release_id in text
    lower, upper = (release.error_bars.columns[name][0, 0] for name in ("lower", "upper"))
    assert f"{lower:,} … {upper:,}" in text


def test_a_table_says_where_its_other_rows_are():
    html = table(("one",), [(str(number),) for number in range(15)], rest="in the file")
    assert "… and 3 more: in the file" in html
    assert ">11<" in html
    assert ">12<" not in html
    assert "more" not in table(("one",), [("1",)], rest="in the file")


def test_an_account_of_very_many_reservations_stays_small(values):
    account = values["account"]
    many = dataclasses.replace(account, spendings=account.spendings * 2000)
    assert len(many._repr_html_()) < MOST_LETTERS


# -------------------------------------------------------------------- at a prompt


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_one_short_line(values, name):
    line = repr(values[name])
    assert line.isprintable()
    assert len(line) < 300, line
    assert "array" not in line


def test_the_line_of_a_release_says_what_it_is(values):
    release = values["release"]
    line = repr(release)
    assert line.startswith(f"Release({NASTY!r}, total 1 → state 2 → county")
    counted = f"{release.counts[0].sum():,} groups with {release.counts[0] @ np.arange(1, 6):,} entities"
    counted += " (sizes above 5 counted as 5)"
    assert f"sizes 1 to 5 or more, {counted}, {release.mechanism}, ε = 1, id {release.release_id[:16]})" in line


def test_a_release_knows_its_id_once_it_is_saved_or_loaded_and_a_changed_copy_does_not(tmp_path):
    release = released(intervals="none")
    assert release.release_id is None
    assert repr(release).endswith("not saved)")
    saved = release.save(tmp_path / "r")
    assert release.release_id == saved == tt.Release.load(tmp_path / "r").release_id
    assert dataclasses.replace(release, title="other").release_id is None


def test_the_line_of_a_broken_verification_has_its_first_fault(values):
    assert "1 of 2 checks failed, first:" in repr(values["broken verification"])
    assert "checks passed" in repr(values["verification"])


@pytest.mark.parametrize(
    "budget", [tt.Budget(epsilon=1), tt.Budget(epsilon="1/3", delta="1e-9"), tt.Budget(rho=0.1, delta="1e-6")]
)
def test_a_budget_is_shown_as_it_may_be_typed(budget):
    assert eval(repr(budget), {"Budget": tt.Budget}) == budget  # noqa: S307


def test_results_and_truths_are_short_too():
    lost = {"costs": {}, "scores": [], "status": "failed", "message": "on purpose"}
    records = [{"mechanism": "mine", "budget": tt.Budget(epsilon=1).to_json(), "run": run, **lost} for run in range(3)]
    line = repr(Results.of(NASTY, 5, "one_entity", records))
    assert "NOT PRIVATE" in line
    assert "1 mechanisms × 1 budgets × 3 runs, 3 rows" in line
    assert line.isprintable()
    assert len(line) < 300
    assert "counts=[3 × 20,000 int64]" in repr(truth(20_000))


@dataclasses.dataclass
class Odd:
    text: str
    numbers: object
    inner: object = None


def test_what_is_long_is_shown_by_its_shape():
    assert briefly(Odd("x" * 100, np.zeros((3, 4)))) == f"Odd(text='{'x' * 59}…', numbers=[3 × 4 float64], inner=None)"
    assert briefly(Odd("\n", tuple(range(9)), Odd("y" * 90, ()))) == "Odd(text='\\n', numbers=(9 …), inner=Odd(…))"
    assert briefly(Odd("", (Fraction(1, 3), [1]), {1: 2})) == "Odd(text='', numbers=(1/3, (1)), inner={1 …})"
    assert briefly(Odd("", len, {})) == "Odd(text='', numbers=len, inner={})"


def every_dataclass():
    for module in pkgutil.walk_packages(tt.__path__, "tallytree."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.name:
                    yield value


def test_no_public_value_with_arrays_shows_them_all():
    arrays = ("Integers", "Floats", "NDArray", "Words", "Arrays")
    found = [
        value
        for value in every_dataclass()
        if not value.__name__.startswith("_")
        and ".noise." not in value.__module__
        and any(array in str(field.type) for field in dataclasses.fields(value) for array in arrays)
    ]
    assert len(found) > 20
    generated = [value for value in found if hasattr(value.__repr__, "__wrapped__")]  # by `dataclass`
    assert not generated


# -------------------------------------------------------------------- charts


def test_the_chart_of_a_region_has_its_counts_and_intervals(values):
    release = values["release"]
    for region, place in ((None, 0), ("B", 2), (LEAVES[1], 4)):
        chart = release.plot(region).to_dict()
        rows = (
            next(layer["data"]["values"] for layer in chart["layer"] if "data" in layer)
            if "data" not in chart
            else chart["data"]["values"]
        )
        assert [row["groups"] for row in rows] == release.counts[place].tolist()
        assert [row["upper"] for row in rows] == release.error_bars.guaranteed.upper[place].tolist()
        assert [row["size"] for row in rows] == ["1", "2", "3", "4", "5+"]


def test_a_chart_of_many_sizes_has_classes_that_add_up_to_all_groups(values):
    release = values["release of many sizes"]
    rows = release.plot().to_dict()["data"]["values"]
    assert [row["size"] for row in rows[:5]] == ["1", "2", "3–4", "5–8", "9–16"]
    assert rows[-1]["size"] == "16385+"
    assert sum(row["groups"] for row in rows) == release.total
    assert "lower" not in rows[0]


@pytest.mark.parametrize("region", ["nowhere", ["a", "c"], 3])
def test_what_is_no_region_cannot_be_drawn(values, region):
    with pytest.raises(tt.SpecError, match="region"):
        values["release"].plot(region)


def test_without_the_extra_a_chart_says_how_to_get_it(values, monkeypatch):
    monkeypatch.setattr(display, "available", lambda: False)
    with pytest.raises(tt.SpecError, match="pip install"):
        values["release"].plot()
