"""The house rules that can be read off the source: who may import whom, who opens a seal, who may have a seed."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tallytree

SOURCE = Path(tallytree.__file__).parent
MODULES = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}

# The rooms, from the ground up. A room may use itself and whatever stands above it here.
ROOMS = (
    "version",
    "core",
    "domain",
    "tables",
    "privacy",
    "estimate",
    "mechanisms",
    "synthesis",
    "planning",
    "publish",
    "demo",
    "lab",
    "command",
)
# The root names everything that is public, and `python -m tallytree` is the command: no room imports either.
ABOVE_ALL = {"__init__", "__main__"}

# Who calls these, apart from where they are defined: the whole list.
OPENERS = {
    "open_at_the_privacy_border": {"privacy.run"},
    # The one door: it opens a seal for a function of its content.
    "open_sealed": {"privacy.private_tables"},
    "_count_private": {"privacy.private_tables"},
}


# Every `while` loop of a kernel, by function: how many there are, and why they end. A kernel runs after the budget is
# spent and cannot be interrupted, so a new loop is a `for` over a range that is known before it begins. This list may
# only become shorter.
ENDING_LOOPS = {
    "estimate.transport._allocate_row": (1, "a part of what is left is given each time, one unit at least"),
    "estimate.transport._right_columns": (1, "a number of paths; then each turn empties a cell or a column"),
    "estimate.intervals.one_sided_bounds._bound": (2, "each turn goes one place on, up to the list's length"),
    "estimate.intervals.tails._least_place": (2, "a range of 64 is halved down to 1e-4; places are counted down"),
    "estimate.joint_tables._fix_columns": (1, "each turn moves a part of what may go the same way, a unit at least"),
    "estimate.joint_tables._project_at_least": (2, "sizes are counted up; a pool is merged once at most"),
    "estimate.joint_tables._share_at_least": (1, "knots are counted up"),
    "estimate.joint_tables._hand_out": (1, "from the second turn on each child takes a part, or all it may"),
    "estimate.joint_tables._give": (1, "knots are counted up"),
    "estimate.isotonic._pool_rows": (1, "a pool is merged once at most"),
    "estimate.isotonic._replace_top": (1, "down a heap, a level each turn"),
    "estimate.isotonic._push": (1, "up a heap, a level each turn"),
    "estimate.simplex._project_rows": (1, "cells are counted up"),
    "estimate.simplex.integer_simplex": (1, "each turn moves a part of what is left, a unit at least"),
    "estimate.isotonic._fit_ascending": (1, "each part has half the range of the one it was cut from"),
    "estimate.isotonic._best_suffix": (1, "blocks are counted down"),
    "estimate.allocation._give_one_each": (1, "each turn takes the next larger of as many numbers as children"),
    "estimate.allocation.multipliers": (2, "MOST_PASSES in both together"),
    "estimate.allocation.pool_rows": (1, "a pool is merged once at most; the first stands at infinity"),
    "estimate.isotonic._pool": (1, "a pool is merged once at most"),
    "estimate.isotonic._is_less": (1, "Euclid's algorithm: 92 turns for 64-bit numbers"),
    "estimate.nearest._exchange_children": (1, "each exchange lowers a cost in integers"),
    "estimate.nearest.paying_pairs": (1, "pairs are counted up"),
    "estimate.nearest.move": (2, "down a path of the tree, and up again"),
    "estimate.nearest._solve": (2, "each unit lowers a cost in integers"),
    "estimate.matching.pairs": (3, "each turn uses up a run; sizes are counted up"),
    "estimate.matching.runs_by_size": (1, "runs that were counted are found again"),
    "estimate.matching._largest": (4, "Hoare's selection: each turn leaves a place behind"),
    "estimate.relaxation._level_for": (1, "Newton's method on a convex sum of pieces, in integers, from above"),
    "lab.rivals.topdown.move": (1, "a range of integers is halved: 64 turns"),
    "lab.rivals.cost_tables._split": (1, "a range of integers is halved: 64 turns"),
    "lab.rivals.cost_tables._steps": (1, "a range of places is halved"),
    "privacy.noise.inversion._look_up": (1, "a range of places is halved"),
    "privacy.run.add_sizes": (1, "regions are counted up"),
}


def imports(name):
    """The modules of tallytree that a module imports: anywhere in its code, lazily or for types alone."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            home, *rest = node.module.split(".")
            if home == "tallytree":
                for alias in node.names:
                    inner = ".".join([*rest, alias.name])
                    yield inner if inner in MODULES or f"{inner}.__init__" in MODULES else ".".join(rest) or "__init__"
        elif isinstance(node, ast.ImportFrom):
            yield "relative"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                home, *rest = alias.name.split(".")
                if home == "tallytree":
                    yield ".".join(rest) or "__init__"


def room(name):
    return name.split(".")[0]


def test_every_module_is_in_a_room():
    assert {room(name) for name in MODULES} == {*ROOMS, *ABOVE_ALL}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ABOVE_ALL])
def test_imports_go_one_way(name):
    allowed = ROOMS[: ROOMS.index(room(name)) + 1]
    wrong = {found for found in imports(name) if room(found) not in allowed}
    assert not wrong, f"{name} imports {sorted(wrong)}"


def test_there_is_no_cycle_of_imports():
    def target(found):
        return found if found in MODULES else f"{found}.__init__"

    graph = {name: {target(found) for found in imports(name)} - {name} for name in MODULES if name not in ABOVE_ALL}
    # To import a module is to import its packages too.
    for found in graph.values():
        for name in list(found):
            parts = name.split(".")[:-1]
            found |= {".".join([*parts[:place], "__init__"]) for place in range(1, len(parts) + 1)}
    for name, found in graph.items():
        found -= {name, *(".".join([*name.split(".")[:place], "__init__"]) for place in range(1, name.count(".") + 1))}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_nobody_but_the_command_imports_the_lab_and_one_look_up_finds_it_by_name():
    outside = [name for name in MODULES if room(name) != "lab"]
    assert {room(name) for name in outside if any(room(found) == "lab" for found in imports(name))} == {"command"}
    named = {
        name
        for name in outside
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tallytree.lab.")
    }
    assert named == {"core.registry"}


def users(*names):
    """The modules that import one of these names, or use it as an attribute."""
    return {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and any(alias.name in names for alias in node.names))
    }


def importers(package):
    """The modules that import a package from outside, anywhere in their code."""
    return {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.split(".")[0] == package
    }


@pytest.mark.parametrize("name", OPENERS)
def test_who_opens_a_seal(name):
    assert users(name) == OPENERS[name]


def test_a_release_can_only_be_drawn_with_cryptographic_randomness():
    def calls(wanted):
        return {
            module
            for module, tree in TREES.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and wanted(node)
        }

    # Two values are made at the border, both by `cryptographic`, and a seeded one in `lab`: the whole list.
    def makes_one(call):
        return getattr(call.func, "id", getattr(call.func, "attr", "")) == "Randomness"

    assert calls(makes_one) == {"privacy.noise.__init__", "lab.truth"}
    # Nobody else takes one apart to change it, or hands one to the border.
    assert users("Randomness", "cryptographic") == {
        "privacy.run",
        "privacy.private_tables",
        "lab.truth",
        "lab.audit.planted",
        "lab.audit.border",
    }
    # The audit's planted defects are seeded too. Its recorder stands in for the noise on made-up tables, in `injected`.
    audited = {"lab.audit.planted", "lab.audit.border"}
    assert users("measure_with") == {"lab.truth", *audited}
    assert users("seeded") == {"lab.microdata", *audited}
    assert calls(lambda call: any(word.arg == "randomness" for word in call.keywords)) == {
        "lab.microdata",
        "lab.audit.border",
    }
    # A release that is not made up cannot get there: nobody outside the audit of the border takes the noise's place.
    assert users("injected") == set()


def test_every_charge_to_the_ledger_is_made_at_the_border():
    # `journal` reserves in the ledger and in the journal of rounds.
    assert users("reserve") == {"privacy.journal", "privacy.joint_cost"}


def test_one_module_uses_the_cipher_and_its_keys_are_the_systems_or_public():
    assert importers("cryptography") == {"privacy.noise.keystream"}
    public = {"synthesis.public_stream", "estimate.intervals.typical"}
    assert users("KeyedWords") == {*public, "lab.truth"}


def test_true_tables_are_counted_at_the_border_and_in_the_lab_only():
    assert {user for user in users("marginal_counts") if room(user) != "lab"} == {"privacy.private_tables"}
    # The same loops count drawn households, in a module that has no way to private codes: it imports no table of them.
    assert users("table_counts") == {"synthesis.sampling"}
    assert "synthesis.sampling" not in users("HouseholdCodes", "Households", *OPENERS)


WEAK = ("default_rng", "np.random", "random.seed", "RandomState", "import random")
ROOT = Path(__file__).parents[1]
EXPERIMENTS = {f"experiments.{path.stem}": path for path in sorted((ROOT / "experiments").glob("*.py"))}
# What reads microdata, opens a seal or draws the noise of a release.
PRIVATE = {"read", "read_households", "measure", "release", "synthesize", "PrivateTables", "Keystream"}


def test_seeds_and_weak_generators_exist_only_where_data_are_made_up_and_in_experiments():
    for name, path in MODULES.items():
        if room(name) not in ("demo", "lab"):
            found = [word for word in WEAK if word in path.read_text(encoding="utf-8")]
            assert not found, f"{name} uses {found}"


def test_where_there_is_a_seed_nothing_private_is_near():
    seeded = {name: path for name, path in (MODULES | EXPERIMENTS).items() if "default_rng" in path.read_text()}
    assert {room(name) for name in seeded} == {"demo", "lab", "experiments"}
    for name, path in seeded.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("tt", "tallytree")
            ):
                named.add(node.attr)
            assert not named & PRIVATE, f"{name} has a seed and uses {named & PRIVATE}"


def test_the_package_needs_nothing_that_is_not_in_the_wheel():
    outside = {"experiments", "tests", "benchmarks"}
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            homes = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                homes.append(node.module or "")
            wrong = {home for home in homes if home.split(".")[0] in outside}
            assert not wrong, f"{name} imports {wrong}"


def test_every_loop_of_a_kernel_ends():
    found = {}
    for name, tree in TREES.items():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            if {"kernel", "part_of_kernels"} & {ast.unparse(decorator) for decorator in function.decorator_list}:
                loops = sum(isinstance(node, ast.While) for node in ast.walk(function))
                found |= {f"{name}.{function.name}": loops} if loops else {}
    assert found == {name: loops for name, (loops, _) in ENDING_LOOPS.items()}


def test_kernels_are_compiled_in_one_place():
    """What finds the loops of kernels knows them by the names `kernel` and `part_of_kernels`."""
    assert importers("numba") == {"core.kernels"}


def test_nothing_is_printed_or_logged_below_the_command():
    for name, tree in TREES.items():
        if room(name) == "command":
            continue
        for node in ast.walk(tree):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert called != "print", name
            assert not (isinstance(node, ast.Import) and any(alias.name == "logging" for alias in node.names)), name


def test_help_needs_no_engine_and_no_compiler():
    code = (
        "import sys, tallytree, tallytree.command.main; "
        "print(sorted({'numba', 'ibis', 'duckdb', 'pyarrow', 'opendp', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_release_by_the_default_and_its_verification_load_nothing_of_the_lab(tmp_path):
    code = (
        "import sys, tallytree as tt; from tests.oracles.example import made_up; "
        "how = {'budget': {'epsilon': 1}, 'unit': 'one_entity', 'intervals': 'none'}; "
        "made = tt.release(made_up(1, public_totals=False), **how); "
        "made.save(sys.argv[1]); assert tt.verify(sys.argv[1]).ok; "
        "print([name for name in sys.modules if name.startswith('tallytree.lab')])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "release")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had_and_type_checkers_are_told_the_same():
    told = {
        alias.asname: f"{node.module}"
        for node in ast.walk(TREES["__init__"])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert told == {name: f"tallytree.{home}" for name, home in tallytree._HOME.items()}
    for name in tallytree.__all__:
        assert getattr(tallytree, name).__module__ == told[name]
    with pytest.raises(AttributeError):
        tallytree.nonsense  # noqa: B018


# ---------------------------------------------------------------- size and shape
# Lower these numbers freely. Raise one only together with a line in the changelog that says what was bought with it.

MOST_CODE_LINES = {
    "core and domain": 2_503,
    "tables": 3_159,
    "privacy": 3_129,
    "estimate": 4_917,
    "mechanisms": 1_897,
    "synthesis": 2_477,
    "planning": 1_588,
    "publish": 9_086,
    "demo": 168,
    "lab": 5_155,
    "command": 4_167,
}
MOST_MODULES = 211
# What a reviewer reads to trust a release: the border, the code that counts rows, and whatever these two import.
READING_LIST = ("privacy.run", "tables.count")
MOST_TO_READ = (33, 4_688)  # modules, code lines
THEOREM_CORE = (
    "privacy.neighbours",
    "privacy.budget",
    "privacy.exact_accounting",
    "privacy.plan",
    "privacy.run",
    "privacy.private_tables",
    "privacy.selection",
    "privacy.noise",
)
MOST_IN_THE_CORE = 1_740
PARTICIPLES = {"settled", "kept", "told", "shown", "asked", "noted", "making", "asking", "keeping"}
# Present exceptions: these lists only get shorter.
PARTICIPLE_MODULES: set[str] = set()
REPEATED_NAMES = {
    "households",
}
COMPLEX = {
    "domain.categories.__post_init__",
    "estimate.allocation._give",
    "estimate.posterior._smooth",
    "estimate.matching.share",
    "domain.hierarchy.from_edges",
}
MANY_PARAMETERS = {
    "lab.runner.compare",
    "planning.report.plan",
    "publish.microdata.synthesis_run.synthesize",
    "publish.release.release_run.release",
    "tables.households.read_households",
    "tables.reading.read",
}


def code_lines(name):
    """Physical lines without blank lines, comments and docstrings."""
    text = MODULES[name].read_text(encoding="utf-8")
    passive = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in passive:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(TREES[name]):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def reachable(*names):
    """The modules that these import, directly or through others, and they themselves."""
    found, open_ones = set(), list(names)
    while open_ones:
        name = open_ones.pop()
        name = name if name in MODULES else f"{name}.__init__"
        if name in MODULES and name not in found and name not in ABOVE_ALL:
            found.add(name)
            open_ones.extend(imports(name))
    return found


def test_every_package_keeps_to_its_code_lines():
    found = Counter()
    for name in MODULES:
        found[room(name) if room(name) in MOST_CODE_LINES else "core and domain"] += code_lines(name)
    over = {name: lines for name, lines in found.items() if lines > MOST_CODE_LINES[name]}
    assert not over, f"more code lines than the budget has: {over}"


def test_there_are_no_more_modules_than_planned():
    assert len(MODULES) <= MOST_MODULES


def test_a_reviewer_reads_no_more_than_planned_to_trust_a_release():
    found = reachable(*READING_LIST)
    assert (len(found), sum(map(code_lines, found))) <= MOST_TO_READ
    assert sum(map(code_lines, found)) <= MOST_TO_READ[1]


# What a reviewer reads, part by part: the table of docs/architecture.md.
BORDER = {
    "what a row counts as": ("tables.count", "tables.sql", "tables.group_sizes", "tables.guard"),
    "1. a release": (
        "privacy.neighbours",
        "privacy.relations",
        "privacy.budget",
        "privacy.exact_accounting",
        "privacy.plan",
        "privacy.measurements",
        "privacy.run",
    ),
    "2. the ledger": ("privacy.chain", "privacy.ledger", "privacy.journal"),
    "3. the noise": (
        "privacy.noise.__init__",
        "privacy.noise.keystream",
        "privacy.noise.inversion",
        "privacy.noise.samplers",
    ),
    "4. a synthesis": ("privacy.selection", "privacy.private_tables", "privacy.joint_cost"),
}


def border_table():
    """The reading guide as a table, with the code lines that there are now."""
    rows = ["| part | modules | code lines |", "|---|---|--:|"]
    for part, names in BORDER.items():
        shown = ", ".join(f"`{name.removesuffix('.__init__')}` {code_lines(name)}" for name in names)
        rows.append(f"| {part} | {shown} | {sum(map(code_lines, names)):,} |")
    return "\n".join(rows)


def test_the_reading_guide_of_the_border_is_true():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("<!-- border: begin -->")[2].partition("<!-- border: end -->")[0]
    assert table.strip() == border_table()
    listed = {name for names in BORDER.values() for name in names}
    assert {name for name in MODULES if room(name) == "privacy"} - {"privacy.__init__"} <= listed


def test_the_theorem_core_stays_small():
    core = [name for name in MODULES if name.startswith(THEOREM_CORE)]
    assert sum(map(code_lines, core)) <= MOST_IN_THE_CORE


def test_privacy_imports_no_display_code():
    display = {"core.display"}
    found = {name for name in MODULES if room(name) == "privacy" and display & set(imports(name))}
    assert not found


def test_a_module_name_is_used_once_but_for_the_listed_ones():
    used = Counter(name.split(".")[-1] for name in MODULES)
    assert {name for name, times in used.items() if times > 1 and name != "__init__"} == REPEATED_NAMES


def test_no_module_is_named_by_a_participle_but_for_the_listed_ones():
    assert {name for name in MODULES if set(name.split(".")) & PARTICIPLES} == PARTICIPLE_MODULES


def test_functions_are_simple_and_take_few_parameters_but_for_the_listed_ones():
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        str(SOURCE),
        "--select",
        "C901,PLR0913",
        "--output-format",
        "json",
    ]
    limits = ["--config", "lint.mccabe.max-complexity=12", "--config", "lint.pylint.max-args=8"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    found: dict[str, set[str]] = {"C901": set(), "PLR0913": set()}
    for problem in json.loads(done.stdout):
        path = Path(problem["filename"])
        line = path.read_text(encoding="utf-8").splitlines()[problem["location"]["row"] - 1]
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[problem["code"]].add(f"{module}.{line.split('def ')[1].split('(')[0]}")
    assert found == {"C901": COMPLEX, "PLR0913": MANY_PARAMETERS}
