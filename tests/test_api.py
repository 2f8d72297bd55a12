"""The docstrings of public names: they are in NumPy sections, name every parameter, and their examples run."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import tallytree

DOCS = Path(__file__).parent.parent / "docs"
# How many functions, classes and methods may lack a part of their `Parameters`: lower this number, do not raise it.
MOST_UNDESCRIBED = 0
# Values that callers get and do not make: their fields need no `Parameters`.
RESULTS = {"Answer", "GroupSizes", "Hierarchy", "Households", "Measurements", "PlanReport", "Release", "Synthesis"}


def unwrapped(member):
    """The function of a method, property or cached property; None for anything else."""
    for inner in ("__func__", "fget", "func"):
        member = getattr(member, inner, None) or member
    return member if inspect.isfunction(member) else None


def public_objects():
    """Every public function, class, method and property, by name."""
    for name in tallytree.__all__:
        public = getattr(tallytree, name)
        yield name, public
        if inspect.isclass(public) and not issubclass(public, Exception):
            for base in public.__mro__:
                for key, member in vars(base).items():
                    if not key.startswith("_") and (function := unwrapped(member)) is not None:
                        yield f"{name}.{key}", function


OBJECTS = dict(public_objects())


def section(docstring, title):
    """The lines of a NumPy section."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return "" if found is None else found[1]


def named_parameters(docstring):
    """The parameters that a docstring describes, in its sections `Parameters` and `Attributes`."""
    lines = section(docstring, "Parameters") + section(docstring, "Attributes")
    heads = re.findall(r"^([\w, ]+?)(?: :.*)?$", lines, re.MULTILINE)
    return {name.strip() for head in heads for name in head.split(",")}


def parameters(public):
    """The parameters of a public object, with the names that `**options` stand for."""
    for one in inspect.signature(public).parameters.values():
        if one.kind == one.VAR_KEYWORD:
            yield from ("confidence", "typical", "progress")
        elif one.name not in ("self", "cls"):
            yield one.name


def undocumented(name):
    public = OBJECTS[name]
    if isinstance(public, type) and (issubclass(public, Exception) or name in RESULTS):
        return set()
    return set(parameters(public)) - named_parameters(inspect.getdoc(public) or "")


def test_every_parameter_is_described():
    found = {name: missing for name in OBJECTS if (missing := undocumented(name))}
    assert len(found) <= MOST_UNDESCRIBED, found


def test_descriptions_name_no_parameter_that_is_not_there():
    for name, public in OBJECTS.items():
        if inspect.isfunction(public):
            found = named_parameters(inspect.getdoc(public) or "")
            assert found <= set(parameters(public)), name


def test_every_public_object_has_a_docstring():
    assert [name for name, public in OBJECTS.items() if not inspect.getdoc(public)] == []


@pytest.mark.parametrize("name", tallytree.__all__)
def test_examples_run(name):
    known = {one: getattr(tallytree, one) for one in tallytree.__all__} | {"tt": tallytree}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for inner, public in OBJECTS.items():  # what a class makes in its example, its methods use
        if inner.split(".")[0] == name:
            text = inspect.getdoc(public) or ""
            test = doctest.DocTestParser().get_doctest(text, known, inner, None, 0)
            runner.run(test, clear_globs=False)
            known = test.globs
    assert runner.failures == 0


def test_the_api_page_lists_every_public_name_once():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r":: tallytree\.(\w+)", page)) == tallytree.__all__
