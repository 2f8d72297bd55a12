"""Every Python block of README and docs runs, page by page, each page in a folder of its own."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "python":
            exec(compile(block, page.name, "exec"), names)  # noqa: S102
        else:
            for line in block.splitlines():
                if line.startswith("$ tallytree "):
                    words = [
                        sys.executable,
                        "-c",
                        "from tallytree.command.main import main; main()",
                        *shlex.split(line)[2:],
                    ]
                    done = subprocess.run(words, capture_output=True, text=True, check=False)
                    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
