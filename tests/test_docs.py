"""The pages keep their word: their code runs, links lead somewhere, and what they name is there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import tallytree
from tallytree.command.main import main
from tallytree.lab.blocks import blocks
from tests.test_architecture import ROOMS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")])
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which also names what is gone
BLOCK = re.compile(r"^```(python|console|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"(?<![\w.])(?:tallytree|experiments)(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"\b(?:src|tests|benchmarks|experiments|docs)/[\w/.-]*\w")


def named(page):
    return page.name


# Code that starts many processes, compiles or fits for long; the commands and functions in it have tests of their own.
SLOW_PAGES = ("audit.md", "edit-rules.md", "evaluate.md", "papers.md")


def mark_slow(page):
    """Mark pages whose code takes long."""
    return pytest.param(page, marks=pytest.mark.slow) if page.name in SLOW_PAGES else page


@pytest.mark.parametrize("page", [mark_slow(page) for page in PAGES], ids=named)
def test_the_pages_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)


def run(page, kinds=("python", "console")):
    """Run a page's blocks of some kinds in the folder where we are."""
    names: dict[str, object] = {"__name__": page.stem}
    for kind, block in BLOCK.findall(page.read_text()):
        if kind not in kinds:
            continue
        if kind == "python":
            exec(compile(block, page.name, "exec"), names)  # noqa: S102
        else:
            for line in block.splitlines():
                if line.startswith("$ "):
                    run_command(line)


def run_command(line):
    """Run a command that succeeds in this process, which has loaded the package and its kernels already."""
    _, program, *words = shlex.split(line)
    assert program == "tallytree", f"a block of commands has one that is not run here: {line}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, *words])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, line


INDENTED_COMMAND = re.compile(r"^(?: {4,}|\t)(?:\$ |(?:tallytree|duckdb|pip|sh|bash|make|git) .*)", re.MULTILINE)


@pytest.mark.parametrize("page", OF_TODAY, ids=named)
def test_a_page_shows_commands_only_in_blocks_that_are_run(page):
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert INDENTED_COMMAND.findall(outside) == []
    assert not re.findall(r"^```(?:sh|bash|shell|shell-session|zsh)$", page.read_text(), re.MULTILINE)


QUERIES = [(page.name, block) for page in PAGES for kind, block in BLOCK.findall(page.read_text()) if kind == "sql"]
ASK = (
    "import duckdb, json, sys; print(json.dumps([duckdb.__version__, duckdb.sql(sys.argv[1]).fetchall()], default=int))"
)


@pytest.fixture
def large_release(tmp_path, monkeypatch):
    """A release in parts, where the pages have one; the folder is the working directory."""
    monkeypatch.setattr("tallytree.publish.release.table_layout.SMALL", 20)
    monkeypatch.chdir(tmp_path)
    made = tallytree.release(
        blocks(scale=1 / 12_000).group_sizes(),
        budget=tallytree.Budget(epsilon=1),
        unit=tallytree.one_entity(),
        intervals="none",
    )
    made.save("country/release")
    return made


def check_queries(made, version=None, **environment):
    """Run all queries of the pages with DuckDB: each gives the release's total for each of the groups of its rows."""
    assert QUERIES
    for page, query in QUERIES:
        words = [sys.executable, "-c", ASK, query]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | environment)
        assert done.returncode == 0, f"{page}\n{query}\n{done.stderr}"
        found, rows = json.loads(done.stdout)
        assert version in (None, found)
        totals = [number for *_, number in rows]
        by_level = sorted(text for text, *_ in rows) == sorted(made.hierarchy.levels)
        assert (set(totals) if by_level else {sum(totals)}) == {made.total}, page


def test_the_pages_queries_give_the_released_numbers(large_release):
    check_queries(large_release)


# Not the rows that spill to disk: with the same limit, that version runs out of memory.
OLDEST_DUCKDB = (
    "--deselect=tests/tables/test_formats.py::test_spilled_rows_leave_nothing_behind",
    "tests/tables/test_counting.py",
    "tests/tables/test_formats.py",
    "tests/tables/test_bad_input.py",
    "tests/tables/test_engine_specs.py::test_a_spec_of_a_duckdb_file_by_url",
)


@pytest.mark.slow
def test_the_pages_queries_and_the_counting_work_with_the_oldest_duckdb_that_is_allowed(large_release, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (lowest,) = [text.partition(">=")[2] for text in project["project"]["dependencies"] if text.startswith("duckdb")]
    version = ".".join([*lowest.split("."), "0", "0"][:3])
    target = tmp_path / "duckdb"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), f"duckdb=={version}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"DUCKDB {version} CANNOT BE INSTALLED HERE, so the oldest version that is allowed was not tried")
    assert done.returncode == 0, done.stderr
    check_queries(large_release, version, PYTHONPATH=str(target))
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OLDEST_DUCKDB]
    done = subprocess.run(
        tests, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(target)}
    )
    assert done.returncode == 0, done.stdout


R_BLOCK = re.compile(r"^```r\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if R_BLOCK.search(page.read_text())], ids=named)
def test_the_pages_r_code_runs_after_its_python(page, tmp_path, monkeypatch):
    if shutil.which("Rscript") is None:
        pytest.skip("R IS NOT INSTALLED, so R code of the pages was not run: make r, or apt-get install r-base-core")
    monkeypatch.chdir(tmp_path)
    run(page, ("python",))
    Path("page.R").write_text("options(warn = 2)\n" + "\n".join(R_BLOCK.findall(page.read_text())))
    done = subprocess.run(["Rscript", "--vanilla", "page.R"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(page):
    for target, heading in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not heading or heading in headings(there), f"{page.name} links to {target}#{heading}"


def headings(page):
    """The headings of a page as links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", OF_TODAY, ids=named)
def test_modules_functions_and_files_that_a_page_names_are_there(page):
    text = page.read_text()
    for name in set(DOTTED.findall(text)):
        assert resolves(name), f"{page.name} names {name}"
    for path in set(PATH.findall(text)):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def resolves(name):
    """Is this a module, or something in one?"""
    *parts, last = name.split(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return bool(parts) and resolves(".".join(parts)) and hasattr(import_module(".".join(parts)), last)
    return True


def test_the_page_on_architecture_has_a_row_for_every_package_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## Packages")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(ROOMS)


def test_the_version_is_written_once_and_cited_as_it_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r'^VERSION = "(.+)"$', source, re.MULTILINE) == [tallytree.__version__]
    citation = (ROOT / "CITATION.cff").read_text()
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if ".dev" in tallytree.__version__:  # the last version is cited
        assert changes.pop(0) == "Unreleased"
        assert changes[0] < tallytree.__version__
    else:
        assert changes[0] == tallytree.__version__
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [changes[0]]
