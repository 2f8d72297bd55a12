"""How the documentation site is built: `make docs`. Pages are Markdown; the API reference is made from docstrings."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tallytree.version import VERSION  # noqa: E402

project = "tallytree"
author = "The tallytree developers"
copyright = "The tallytree developers, Apache-2.0"  # noqa: A001
version = release = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Docstrings say `name` for code.
default_role = "code"
add_module_names = False
autosummary_generate = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
autodoc_preserve_defaults = True  # a signature must be Python to be divided into lines
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes are a list of fields: autodoc has those with docstrings already
napoleon_use_rtype = False  # the type stands before what is returned
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
toc_object_entries = False

html_theme = "pydata_sphinx_theme"
html_title = "tallytree"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["tallytree.css"]
html_sidebars = {"**": ["globaltoc.html"]}  # all pages by their headings: there are few enough
html_theme_options = {
    "navbar_center": [],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# Pages of the project that stand above `docs/`: on the site they are pages like the others.
PROJECT = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md", "security": "SECURITY.md"}


def more_pages(index: str) -> str:
    """A list of the pages that the index does not name, so that none is left out."""
    here = Path(__file__).parent
    found = (path.relative_to(here).with_suffix("").as_posix() for path in sorted(here.rglob("*.md")))
    named = {*re.findall(r"^(?:.*<)?([\w/-]+)>?$", index, re.MULTILINE), "index"}
    rest = [page for page in found if page not in named and not page.startswith("_")]
    return "\n".join(["", "```{toctree}", ":caption: More", ":maxdepth: 1", "", *rest, "```", ""]) if rest else ""


def more_names(api: str) -> str:
    """The public names that the API reference does not list, so that none is left out."""
    import inspect

    import tallytree

    listed = set(re.findall(r":: tallytree\.(\w+)", api))
    blocks = []
    for name in tallytree.__all__:
        if name not in listed:
            is_class = inspect.isclass(getattr(tallytree, name))
            blocks += [f".. auto{'class' if is_class else 'function'}:: tallytree.{name}"]
            blocks += ["   :members:"] * is_class + [""]
    return "\n".join(["", "## More", "", "```{eval-rst}", *blocks, "```", ""]) if blocks else ""


def with_summaries(api: str) -> str:
    """The API reference with a table of names, each with the first line of its docstring, above the names of a task."""

    def summary(block: re.Match[str]) -> str:
        names = re.findall(r":: (tallytree\.\w+)", block.group(1))
        return "\n".join(
            ["```{eval-rst}", ".. autosummary::", "   :nosignatures:", "", *[f"   ~{name}" for name in names]]
        )

    return re.sub(
        r"```{eval-rst}\n(.*?)(?=```)", lambda block: f"{summary(block)}\n\n{block.group(1)}", api, flags=re.S
    )


def as_on_the_site(app, docname, source):
    """Take the text of a project's page from where it is, and have links to such pages lead to those of the site."""
    if docname == "index":
        source[0] += more_pages(source[0])
    if docname == "api":
        source[0] = with_summaries(source[0] + more_names(source[0]))
    if docname in PROJECT:
        source[0] = (ROOT / PROJECT[docname]).read_text(encoding="utf-8").replace("](docs/", "](")
    above = r"(?:\.\./)*"
    for page, file in PROJECT.items():
        source[0] = re.sub(rf"\]\({above}{re.escape(file)}", f"](/{page}.md", source[0])
    source[0] = re.sub(rf"\]\({above}README\.md", "](/index.md", source[0])


def as_restructured_text(app, what, name, about, options, lines):
    """Keep signs that docutils would take for markup, and the paragraphs of proofs; NumPy sections stay as they are."""
    first = next((place for place, line in enumerate(lines[1:]) if re.fullmatch(r"\s*-{3,}", line)), len(lines))
    kept: list[str] = []
    for place, line in enumerate(lines):
        before = kept[-1] if kept else ""
        inner, outer = (len(text) - len(text.lstrip()) for text in (line, before))
        item = re.match(r"\s+[a-z][\w ]{2,80}: ", line)
        in_list = re.match(r"\s*[-*>.] ?", before)
        if place < first and line.strip() and before.strip() and not in_list and (inner != outer or item):
            kept.append("")
        code = line.lstrip().startswith((">>>", "..."))
        kept.append(line if code or place >= first else line.replace("|", "\\|"))
    lines[:] = kept


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", as_on_the_site)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon reads the sections
