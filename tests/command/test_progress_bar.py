"""What a person sees of long work, in a terminal and in a log."""

import math
import re
import sys
import warnings
from fractions import Fraction
from io import StringIO

import numba
import pytest
from rich.cells import cell_len

import tallytree.command.main
from tallytree.command import progress_bar
from tallytree.command.main import showing_warnings
from tallytree.command.progress_bar import _Log, _Pace, show_progress
from tallytree.core.progress import Stage
from tests.command.test_release_spec import GOOD as RELEASE
from tests.command.test_synthesis_spec import GOOD as SYNTHESIS
from tests.command.test_synthesis_spec import HOUSEHOLDS, PERSONS

STAGES = [
    Stage("reading the public tables"),
    Stage("typical intervals", 12, 25, 'about 30 min; intervals = "guaranteed" leaves them out, ' + "and more " * 9),
    Stage("fitting", 1_121, 1_200, "3 tables at once", spent=Fraction(1, 8000), budget=Fraction(1, 2000)),
    Stage("writing households", 99_000_000, 117_538_000),
    Stage("reading the data", 37, 100, "counting", unit="%"),
    Stage("NOT PRIVATE: comparing", 101, 400, resumed=100, seconds_left=12345.6),
]
LONG = [
    Stage(f"writing {'long-' * 30}.csv", 99_000_000, 117_538_000, "3 tables at once"),
    Stage(f"writing {'दादरा और नगर हवेली ' * 6}.csv", 1, 2),
    Stage(f"writing {'統計表' * 30}.csv", 1, 2, "統計表" * 30),
]


@pytest.fixture
def lines(monkeypatch, capsys):
    """The lines of the error stream, as a terminal shows them."""
    monkeypatch.setenv("TERM", "xterm")

    def lines(*stages, quiet=False, terminal=True, columns=80, then=lambda stage: None):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
        with show_progress(quiet) as progress:
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


@pytest.mark.parametrize("stage", [*STAGES, *LONG], ids=lambda stage: stage.doing[:20])
@pytest.mark.parametrize("columns", [40, 80])
def test_lines_fit_the_terminal(lines, stage, columns):
    found = lines(stage, columns=columns)
    assert all(cell_len(line) <= columns for line in found)
    assert columns < 80 or f"{progress_bar.amount(stage)}  0:00".strip() in " ".join(found)


@pytest.mark.parametrize("stage", [*STAGES, *LONG], ids=lambda stage: stage.doing[:20])
def test_a_line_of_a_log_fits_80_columns_and_shows_the_numbers(lines, stage, monkeypatch):
    monkeypatch.setattr(progress_bar, "BETWEEN_LINES", 0)  # as if much time passed between two stages
    (line,) = lines(stage, terminal=False, columns=200)
    assert cell_len(line) <= 80
    assert line.startswith(stage.doing[:20])
    assert f"{progress_bar.amount(stage)}  0:00".strip() in line


def test_work_that_goes_on_after_the_result_shows_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "BETWEEN_LINES", 0)
    with show_progress(quiet=False) as progress:
        progress(Stage("reading"))
    progress(Stage("reading", 1, 2))  # by a thread that was not waited for
    assert capsys.readouterr().err == "reading  0:00\n"


COMMANDS = {
    "demo": ["demo", "--households", "1000"],
    "validate": ["validate", "release.toml"],
    "plan": ["plan", "release.toml", "--prior", "households", "--groups", "1000"],
    "release": ["release", "release.toml", "--out", "mine", "--no-ledger"],
    "verify": ["verify", "demo-release"],
    "query": ["query", "demo-release", "--level", "county", "--size", ">=3"],
    "export": ["export", "demo-release", "--to", "csvw"],
    "report": ["report", "demo-release"],
    "synthesize": ["synthesize", "synth.toml", "--out", "synthesis", "--no-ledger"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    (folder / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (folder / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")
    (folder / "release.toml").write_text(RELEASE)
    (folder / "households.csv").write_text(HOUSEHOLDS)
    (folder / "persons.csv").write_text(PERSONS)
    (folder / "synth.toml").write_text(SYNTHESIS)
    return folder


class Stream(StringIO):
    """A stream that says in which order it and another one were written."""

    def __init__(self, name, written):
        super().__init__()
        self.name, self.written = name, written

    def write(self, text):
        self.written.append((self.name, text))
        return super().write(text)


def test_on_a_slow_machine_progress_fits_80_columns_and_comes_before_the_result(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    for name, words in COMMANDS.items():
        written = []
        with monkeypatch.context() as patch:
            patch.setattr(progress_bar, "BETWEEN_LINES", -math.inf)  # a line for each call: no machine shows more
            patch.setattr(sys, "argv", ["tallytree", *words])
            patch.setattr(sys, "stdout", Stream("result", written))
            patch.setattr(sys, "stderr", Stream("progress", written))
            with pytest.raises(SystemExit) as stop:
                tallytree.command.main.main()
        texts = {stream: "".join(text for one, text in written if one == stream) for stream in ("progress", "result")}
        assert not stop.value.code, texts
        assert texts["progress"], name
        assert all(cell_len(line) <= 80 for line in texts["progress"].splitlines()), texts["progress"]
        streams = [stream for stream, _ in written]
        assert streams == sorted(streams), (name, texts["progress"])


def test_a_line_says_how_much_is_done_spent_and_left(lines):
    assert "12 of 25  0:00" in lines(STAGES[1])[-2]
    assert lines(STAGES[1])[-1].startswith("  about 30 min; intervals")
    assert "1,121 of 1,200, ρ 0.000125 of 0.0005  0:00" in lines(STAGES[2])[-2]
    assert "101 of 400  0:00, 3:25:45 left" in lines(STAGES[5])[-1]


def test_the_next_stage_takes_the_place_of_the_last(lines):
    assert "fitting" not in " ".join(lines(*STAGES[2:4])[-1:])


def test_a_log_says_how_long_it_takes_still(monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "BETWEEN_LINES", 10)
    now = [0.0]
    log = _Log(clock=lambda: now[0])
    for now[0], done in ((60.0, 0), (100.0, 250)):
        log.show(Stage("estimating", done, 1000, unit="%"))
    assert capsys.readouterr().err.splitlines() == ["estimating  0 %  0:00", "estimating  25 %  0:40, 2:00 left"]
    closed = StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    now[0] = 200.0
    log.show(Stage("estimating", 500, 1000, unit="%"))  # nobody listens, and nothing happens


def test_the_time_of_compiling_is_no_part_of_the_pace():
    now = [0.0]
    pace = _Pace(lambda: now[0])
    pace.begin()
    for now[0], begins in ((0.5, True), (2.0, True), (50.0, False), (83.0, False)):  # two kernels at a time
        pace.compiling(begins)
    now[0] = 84.5
    assert pace.seconds_left(Stage("simulating", 1, 25)) == pytest.approx(24 * 2.0)
    pace.compiling(True)
    now[0] = 90.0
    assert pace.seconds_left(Stage("simulating", 1, 25)) == pytest.approx(24 * 2.0)
    pace.begin()  # a stage that begins while a kernel is compiled
    now[0] = 95.0
    pace.compiling(False)
    assert pace.seconds_left(Stage("other", 1, 2)) is None  # nothing is known yet
    now[0] = 97.0
    assert pace.seconds_left(Stage("other", 1, 2)) == pytest.approx(2.0)


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
