"""Errors and warnings of the package can be sent to another process: a pool of workers pickles what they raise."""

import ast
import importlib
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.privacy.plan import MeasurementQuery, Plan
from tallytree.privacy.run import measure
from tallytree.tables.group_sizes import GroupSizes, Sealed

SOURCE = Path(tt.__file__).parent


def modules_with_classes():
    """Modules that define a class with a base, by name; importing them all would take the optional packages."""
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        bases = [
            base.id
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for base in node.bases
            if isinstance(base, ast.Name)
        ]
        if any(base.endswith(("Error", "Warning", "Exception", "Interrupt", "Problems")) for base in bases):
            yield ".".join(["tallytree", *path.relative_to(SOURCE).with_suffix("").parts])


def exception_classes():
    found = {}
    for name in modules_with_classes():
        module = importlib.import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == name:
                found[f"{name}.{value.__qualname__}"] = value
    return found


CLASSES = exception_classes()


def example(kind):
    """An error of a class, made as the package makes it."""
    from tallytree.lab.counts_files import UnclearLevels, UnclearSizes
    from tallytree.publish.release.fallback import NotEstimated
    from tallytree.publish.run_folder import RunState, SpentError
    from tallytree.tables.problems import InputProblems, problem

    if kind is SpentError:
        return SpentError("the disk is full.", RunState(Path("out.partial"), "measured", charged="ε = 1 of 'people'"))
    if kind is InputProblems:
        return InputProblems([problem("no_group", 3, group="column 'home'")])
    if kind in (UnclearLevels, UnclearSizes):
        return kind("the columns are not clear", ["state", "county"])
    if kind is NotEstimated:
        return NotEstimated("no mechanism could do it", measured())
    return kind("what went wrong")


def measured():
    """Measurements of one region."""
    private = GroupSizes(
        tt.Hierarchy.from_levels(pa.table({"county": ["a"]}), ["county"]), 2, Sealed(np.array([[3, 1]]))
    )
    plan = Plan(tt.Budget(epsilon=1), tt.one_entity(), (MeasurementQuery("counts", 0, Fraction(1)),))
    return measure(private, plan)


def test_the_errors_are_found():
    assert {"TallytreeError", "BudgetError", "InputProblems", "SpentError", "ChangedInput"} <= {
        name.rsplit(".", 1)[1] for name in CLASSES
    }


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_comes_back_from_another_process_as_it_was(name):
    error = example(CLASSES[name])
    error.add_note("how to go on")
    back = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back).keys() == vars(error).keys()
    assert back.__notes__ == ["how to go on"]
