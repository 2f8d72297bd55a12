"""What the tests of the command share."""

import math
import sys

import pytest

import tallytree.command.main
from tallytree.command import progress_bar


@pytest.fixture(autouse=True)
def log_without_progress(monkeypatch):
    """What the command writes does not depend on how long it takes: a log gets no lines about progress."""
    monkeypatch.setattr(progress_bar, "BETWEEN_LINES", math.inf)


@pytest.fixture
def typed(folder, monkeypatch, capsys):
    """The command in this process, in the test's `folder`: what it shows, after a check of its exit code."""

    def typed(*words, code=0):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "argv", ["tallytree", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        text = " ".join((shown.out + shown.err).split())
        assert (stop.value.code or 0) == code, text
        return text

    return typed
