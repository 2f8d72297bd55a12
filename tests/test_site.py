"""The documentation site: it builds without a warning, has every page, and every public name with its options."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tallytree

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md") if "_build" not in path.parts}


def test_public_functions_and_methods_spell_their_options_out():
    for name in tallytree.__all__:
        public = getattr(tallytree, name)
        inner = vars(public).items() if inspect.isclass(public) else ()
        methods = [getattr(one, "__func__", one) for key, one in inner if not key.startswith("_")]
        for function in [public, *filter(inspect.isfunction, methods)]:
            if inspect.isclass(function) and issubclass(function, Exception):
                continue
            for one in inspect.signature(function).parameters.values():
                assert one.kind != inspect.Parameter.VAR_POSITIONAL, (name, function)
                # `**options` has a type that names them all, and that the editor shows
                named = str(one.annotation).startswith("Unpack[")
                assert one.kind != inspect.Parameter.VAR_KEYWORD or named, (name, function)


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path):
    options = ("--fail-on-warning", "--keep-going", "--quiet", "--builder", "html")
    words = [sys.executable, "-m", "sphinx", *options, "--doctree-dir", tmp_path / "trees", DOCS, tmp_path / "html"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index, api = ((tmp_path / "html" / f"{page}.html").read_text(encoding="utf-8") for page in ("index", "api"))
    assert all(f'href="{page}.html"' in index for page in PAGES - {"index"})
    assert all(api.count(f'id="tallytree.{name}"') == 1 for name in tallytree.__all__)
    assert 'id="tallytree.Release.estimate"' in api
