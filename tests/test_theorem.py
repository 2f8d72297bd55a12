"""The theorem's table: every step of the proof names functions that are there and tests that pytest collects."""

import ast
import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

import tallytree

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "privacy.md"
TABLE = ROOT / "docs" / "privacy-steps.csv"
NAMED = re.compile(r"`([^`]+)`")
BORDER = Path(tallytree.__file__).parent / "privacy"


def rows():
    """The table's rows as (step, functions, tests)."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["step", "functions", "tests"]
    return [(step, NAMED.findall(functions), NAMED.findall(tests)) for step, functions, tests in lines]


ROWS = rows()


@cache
def collected(path):
    """The functions of a file that pytest collects: top-level, by the names it looks for, not skipped, each once."""
    assert Path(path).name.startswith("test_"), f"pytest does not collect {path}"
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    names = Counter(node.name for node in found)
    skipped = {node.name for node in found for mark in node.decorator_list if "skip" in ast.unparse(mark)}
    return {name for name, times in names.items() if times == 1} - skipped


def test_the_table_is_there_and_each_step_is_named_once():
    steps = [step for step, _, _ in ROWS]
    assert len(steps) > 40
    assert len(set(steps)) == len(steps)
    assert all(steps)


@pytest.mark.parametrize(("step", "functions", "tests"), ROWS, ids=[step for step, _, _ in ROWS])
def test_every_step_has_functions_that_exist_and_tests_that_run(step, functions, tests):
    assert functions, f"no function for: {step}"
    assert tests, f"no test for: {step}"
    for function in functions:
        resolve_name(f"tallytree.{function}")  # an error, if it is not there
    for test in tests:
        path, name = test.split("::")
        assert name in collected(path), f"{test} is not collected"


def test_the_page_shows_the_table():
    assert f":file: {TABLE.name}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_test_that_a_page_names_is_collected(page):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        assert name in collected(path), f"{page.name} names {path}::{name}"


def test_every_lemma_and_theorem_of_the_page_has_its_steps_in_the_table():
    text = PAGE.read_text(encoding="utf-8")
    lemmas = {f"L{number}" for number in re.findall(r"^\*\*Lemma (\d+)", text, re.MULTILINE)}
    theorems = {f"Theorem {number}" for number in re.findall(r"^## Theorem (\d+)", text, re.MULTILINE)}
    assert len(lemmas) == 10
    assert len(theorems) == 4
    assert {step.split(":")[0] for step, _, _ in ROWS} >= lemmas | theorems


def test_every_module_of_the_border_carries_a_step():
    """What no proof rests on has no place inside the border."""
    carried = {function for _, functions, _ in ROWS for function in functions}
    for path in BORDER.rglob("*.py"):
        module = ".".join(path.relative_to(BORDER.parent).with_suffix("").parts)
        if path.name != "__init__.py":
            assert any(function.startswith(f"{module}.") for function in carried), f"no step names {module}"


SOURCE = BORDER.parent
PACKAGES = "|".join(path.name for path in sorted(SOURCE.iterdir()) if (path / "__init__.py").exists())
DOTTED = re.compile(rf"`(?:tallytree\.)?((?:{PACKAGES})\.(?!json`)[A-Za-z_][\w.]*)`")


def test_dotted_names_in_docstrings_exist():
    for path in sorted(SOURCE.rglob("*.py")):
        for name in DOTTED.findall(path.read_text(encoding="utf-8")):
            try:
                resolve_name(f"tallytree.{name}")
            except (ImportError, AttributeError) as error:
                raise AssertionError(f"{path.relative_to(SOURCE)} names `{name}`: {error}") from None
