"""What `--help` shows on a terminal of 80 columns."""

import re

import pytest
import typer
from typer.testing import CliRunner

from tallytree.command.main import app


def commands(group=None, path=()):
    """Each command and group of commands, by its words."""
    found = typer.main.get_command(app) if group is None else group
    yield path
    for name, inner in getattr(found, "commands", {}).items():
        yield from commands(inner, (*path, name))


def shown(path):
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}, prog_name="tallytree")
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("path", [*commands()], ids=lambda path: " ".join(path) or "tallytree")
def test_help_fits_into_80_columns_and_names_values_by_words(path):
    lines = shown(path).splitlines()
    assert max(map(len, lines)) <= 80
    options = [line for line in lines if line.startswith("  -")]
    assert not [line for line in options if re.search("<(str|int|float|path)", line)]
