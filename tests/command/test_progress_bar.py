"""What a person sees of long work, in a terminal of 80 columns."""

import re
import warnings
from fractions import Fraction
from io import StringIO

import numba
import pytest

from tallytree.command.main import showing_warnings
from tallytree.command.progress_bar import _Log, shown
from tallytree.progress import Stage

STAGES = [
    Stage("reading the public tables"),
    Stage("typical intervals", 12, 25, 'about 30 min; intervals = "guaranteed" leaves them out, ' + "and more " * 9),
    Stage("fitting", 1_121, 1_200, "3 tables at once", spent=Fraction(1, 8000), budget=Fraction(1, 2000)),
    Stage("writing households", 99_000_000, 117_538_000),
    Stage("reading the data", 37, 100, "counting", unit="%"),
    Stage("NOT PRIVATE: comparing", 101, 400, resumed=100, seconds_left=12345.6),
]


@pytest.fixture
def lines(monkeypatch, capsys):
    """The lines of the error stream, as a terminal shows them."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")

    def lines(*stages, quiet=False, terminal=True, then=lambda stage: None):
        monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
        with shown(quiet) as progress:
            for stage in stages:
                progress(stage)
            then(stages[-1])
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
        return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]

    return lines


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.doing)
def test_a_stage_keeps_to_its_lines(lines, stage):
    found = lines(stage)
    assert all(len(line) <= 80 for line in found)
    assert all(stage.doing in line or line.strip().startswith(stage.about[:10]) for line in found)


def test_a_line_says_how_much_is_done_spent_and_left(lines):
    assert "12 of 25  0:00" in lines(STAGES[1])[-2]
    assert lines(STAGES[1])[-1].startswith("  about 30 min; intervals")
    assert "1,121 of 1,200, ρ 0.000125 of 0.0005  0:00" in lines(STAGES[2])[-2]
    assert "101 of 400  0:00, 3:25:45 left" in lines(STAGES[5])[-1]


def test_the_next_stage_takes_the_place_of_the_last(lines):
    assert "fitting" not in " ".join(lines(*STAGES[2:4])[-1:])


def test_a_log_says_how_long_it_takes_still(monkeypatch, capsys):
    seconds = iter([0.0, 0.0, 60.0, 100.0, 200.0])  # it looks twice when it begins
    log = _Log(clock=lambda: next(seconds))
    log.show(Stage("estimating", 0, 1000, unit="%"))
    log.show(Stage("estimating", 250, 1000, unit="%"))
    assert capsys.readouterr().err.splitlines() == ["estimating  0 %  0:00", "estimating  25 %  0:40, 2:00 left"]
    closed = StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    log.show(Stage("estimating", 500, 1000, unit="%"))  # nobody listens, and nothing happens


def test_nothing_is_shown_in_silence_or_in_a_file(lines):
    assert lines(*STAGES, quiet=True) == lines(*STAGES, terminal=False) == []


def test_reading_is_shown_in_percent(lines):
    assert "37 %  0:00" in lines(STAGES[4])[-2]


def test_a_warning_stays_on_the_screen_above_the_bar(lines):
    def warned(stage):
        warnings.warn("the ledger is open to others", stacklevel=1)

    with showing_warnings():
        found = lines(STAGES[0], STAGES[1], then=warned)
    place = next(at for at, line in enumerate(found) if "warning: the ledger is open to others" in line)
    assert found[place] == "warning: the ledger is open to others"  # nothing was drawn over it
    assert any("typical intervals" in line for line in found[place + 1 :])  # the bar is drawn again below


def test_compiling_is_called_what_it_is_and_loading_is_not(lines):
    fresh = numba.njit(lambda number: number + 1)  # without a cache

    def work(stage):
        fresh(1)

    found = lines(Stage("estimating"), then=work)
    assert any("compiling, once" in line for line in found)
    assert "estimating" in found[-1]
    assert not any("compiling" in line for line in lines(Stage("estimating"), then=work))
