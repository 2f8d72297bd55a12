"""The pages keep their word: their code runs, links lead somewhere, and what they name is there."""

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
from tests.test_architecture import ROOMS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")])
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which also names what is gone
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"\b(?:tallytree|experiments)(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"\b(?:src|tests|benchmarks|experiments|docs)/[\w/.-]*\w")


def named(page):
    return page.name


def mark_slow(page):
    """The code of two pages takes long: it audits and compares mechanisms many times, in processes of their own."""
    return pytest.param(page, marks=pytest.mark.slow) if page.name in ("audit.md", "evaluate.md") else page


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
                if line.startswith("$ tallytree "):
                    run_command(line)


def run_command(line):
    """Run a command that succeeds in this process, which has loaded the package and its kernels already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", shlex.split(line)[1:])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, line


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


def test_the_page_on_architecture_has_a_paragraph_for_every_room_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert re.findall(r"^\*\*`(\w+)`\*\*", page, re.MULTILINE) == list(ROOMS)


def test_the_version_is_written_once_and_cited_as_it_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r'^VERSION = "(.+)"$', source, re.MULTILINE) == [tallytree.__version__]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [tallytree.__version__]
    assert f"## {tallytree.__version__}" in (ROOT / "CHANGELOG.md").read_text()
