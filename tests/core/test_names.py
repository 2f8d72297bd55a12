"""Names that others chose: on a terminal, in a spreadsheet, in a chart."""

import io
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from tallytree.command import screen
from tallytree.core import display
from tallytree.core.names import FORMULA, did_you_mean, for_a_spreadsheet, from_a_spreadsheet, visible

NASTY = "[bold]x[/bold]\x1b[31m\n=1+1 \u202e\x9b2J[/nonsense]"


def printed(*parts):
    console = Console(file=io.StringIO(), width=200, force_terminal=False, highlight=False)
    for part in parts:
        console.print(part, markup=False)
    return console.file.getvalue()


def is_literal(text):
    assert "[bold]x[/bold]\\x1b[31m\\n=1+1 \\u202e\\x9b2J[/nonsense]" in text
    assert not set(text) & set("\x1b\x9b\u202e")
    return True


def test_facts_and_tables_show_names_as_they_are():
    assert is_literal(printed(screen.facts({"title": NASTY})))
    assert is_literal(printed(screen.facts({NASTY: "title"})))
    table = screen.plain_table("region", NASTY)
    table.add_row(NASTY, "1")
    assert printed(table).count("[bold]x[/bold]\\x1b[31m\\n") == 2
    assert is_literal(printed(table))


def test_lines_of_text_show_names_as_they_are(capsys):
    assert is_literal(printed(Group(screen.words(NASTY, style="bold green"))))
    screen.show(f"first line\nsecond line: {NASTY}")
    shown = capsys.readouterr().out
    assert shown.startswith("first line\nsecond line: [bold]x")
    assert "\x1b" not in shown


def test_json_for_programs_keeps_the_exact_name_and_does_not_act_on_a_terminal(capsys):
    import json

    screen.show_json({"name": NASTY, "lone": "\ud800"})
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\x9b\u202e\ud800")
    assert json.loads(out) == {"name": NASTY, "lone": "\ud800"}


@given(st.text())
def test_a_visible_text_has_no_control_character(text):
    assert visible(text).isprintable() or not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in visible(text))
    visible(text).encode()


@given(st.text(alphabet=[*FORMULA, "'", "a", " "], max_size=6) | st.text())
def test_a_spreadsheets_cell_is_no_formula_and_gives_the_name_back(name):
    cell = for_a_spreadsheet(name)
    assert not cell.startswith(tuple(FORMULA))
    assert from_a_spreadsheet(cell) == name


@given(st.lists(st.text(alphabet="='+a", max_size=4), unique=True))
def test_different_names_stay_different_in_a_spreadsheet(names):
    assert len({for_a_spreadsheet(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("County", "did you mean 'county'?"), ("zzz", "there are state, county"), (7, "there are state, county")],
)
def test_a_slip_gets_the_nearest_known_word(word, hint):
    assert did_you_mean(word, ["state", "county"]) == hint


def test_whatever_is_shown_nothing_acts_on_the_terminal(capsys):
    parts = Text("a ", style="bold") + Text(f"{NASTY}\n", style="red") + Text(" b")
    screen.show(Group(parts, Padding(NASTY, (0, 0, 0, 2))))
    shown = capsys.readouterr().out
    assert shown.count("[bold]x[/bold]\\x1b[31m") == 2
    assert not set(shown) & set("\x1b\x9b\u202e")


CHART_NAME = "</script><script>alert(1)</script>\x1b[31m\nwide"


@pytest.mark.parametrize("ending", [".html", ".svg", ".png"])
def test_a_chart_shows_names_as_they_are_and_runs_nothing(ending, tmp_path):
    alt = pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    rows = [{"x": 1, "y": 2, "mechanism": CHART_NAME}]
    chart = (
        alt.Chart(alt.Data(values=rows), title=CHART_NAME).mark_point().encode(x="x:Q", y="y:Q", color="mechanism:N")
    )
    target = display.save(chart, tmp_path / f"chart{ending}")
    if ending == ".png":
        assert target.read_bytes().startswith(b"\x89PNG")
        return
    text = target.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert "\x1b" not in text
    if ending == ".svg":
        shown = "".join(ElementTree.fromstring(text).itertext())
        assert "</script><script>alert(1)</script>\\x1b[31m\\nwide" in shown
