"""The house rules that can be read off the source: who may import whom, who opens the seal, who may have a seed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tallytree

SOURCE = Path(tallytree.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# A folder imports only from those before it; the modules in front serve all.
ORDER = ["tables", "privacy", "estimate", "mechanisms", "synthesis", "publish", "evaluate"]
EVERYWHERE = {"errors", "kernels", "hierarchy", "histogram", "long_table", "schema"}
ABOVE_ALL = {"toml_spec", "spec", "screen", "cli", "synth_spec", "synth_screen", "synth_command", "__init__"}


def imported(module):
    """The parts of tallytree that a module imports, at any depth of its code."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tallytree":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [name.name for name in node.names]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("tallytree."))


def home(module):
    relative = module.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_imports_go_one_way(module):
    place, found = home(module), set(imported(module))
    if place in ABOVE_ALL:
        return
    allowed = set(EVERYWHERE)
    if place in ORDER:
        allowed |= set(ORDER) if place == "evaluate" else set(ORDER[: ORDER.index(place) + 1])
    assert found <= allowed, f"{place} imports {sorted(found - allowed)}"


def test_only_the_border_opens_the_seal():
    callers = {
        str(module.relative_to(SOURCE))
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "open_at_the_privacy_border"
    }
    assert callers == {"privacy/measure.py", "privacy/rounds.py"}


def test_only_evaluate_measures_with_noise_of_its_own():
    users = {
        str(module.relative_to(SOURCE))
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and any(name.name == "_measured" for name in node.names)
    }
    assert users == {"evaluate/truth.py"}


def test_only_evaluate_draws_rounds_with_words_of_its_own():
    users = {
        str(module.relative_to(SOURCE))
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.ImportFrom) and any(name.name == "_private_tables" for name in node.names))
        or (isinstance(node, ast.Attribute) and node.attr in {"_private_tables", "_start_with"})
    }
    assert {user for user in users if not user.startswith("evaluate/")} == {"privacy/rounds.py"}


def test_true_tables_are_counted_at_the_border_and_in_evaluate_only():
    users = {
        str(module.relative_to(SOURCE))
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and any(name.name == "marginal_counts" for name in node.names)
    }
    assert {user for user in users if not user.startswith("evaluate/")} == {"privacy/rounds.py"}


def test_seeds_and_weak_generators_exist_only_in_evaluate():
    weak = ("default_rng", "np.random", "random.seed", "RandomState", "import random")
    for module in MODULES:
        if home(module) != "evaluate":
            found = [word for word in weak if word in module.read_text()]
            assert not found, f"{module.relative_to(SOURCE)} uses {found}"


def test_nothing_is_printed_or_logged_below_the_command():
    for module in MODULES:
        if home(module) in {"cli", "screen"}:
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert called != "print", module
            assert not (isinstance(node, ast.Import) and any(name.name == "logging" for name in node.names)), module


def test_help_needs_no_engine_and_no_compiler():
    code = (
        "import sys, tallytree, tallytree.cli; "
        "print(sorted({'numba', 'ibis', 'duckdb', 'pyarrow', 'opendp', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    for name in tallytree.__all__:
        assert getattr(tallytree, name) is not None
    with pytest.raises(AttributeError):
        tallytree.nonsense  # noqa: B018
