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

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Docstrings say `name` for code.
default_role = "code"
add_module_names = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
toc_object_entries = False

html_theme = "pydata_sphinx_theme"
html_title = "tallytree"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["tallytree.css"]
html_theme_options = {
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


def as_on_the_site(app, docname, source):
    """Take the text of a project's page from where it is, and have links to such pages lead to those of the site."""
    if docname in PROJECT:
        source[0] = (ROOT / PROJECT[docname]).read_text(encoding="utf-8").replace("](docs/", "](")
    above = r"(?:\.\./)*"
    for page, file in PROJECT.items():
        source[0] = re.sub(rf"\]\({above}{re.escape(file)}", f"](/{page}.md", source[0])
    source[0] = re.sub(rf"\]\({above}README\.md", "](/index.md", source[0])


def as_restructured_text(app, what, name, about, options, lines):
    """Docstrings are plain text: signs that docutils would take for markup are kept, proofs keep their paragraphs."""
    kept: list[str] = []
    for line in lines:
        before = kept[-1] if kept else ""
        inner, outer = (len(text) - len(text.lstrip()) for text in (line, before))
        item = re.match(r"\s+[a-z][\w ]{2,80}: ", line)
        in_list = re.match(r"\s*[-*>.] ?", before)
        if line.strip() and before.strip() and not in_list and (inner != outer or item):
            kept.append("")
        kept.append(line.replace("|", "\\|") if not line.lstrip().startswith(">>>") else line)
    lines[:] = kept


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", as_on_the_site)
    app.connect("autodoc-process-docstring", as_restructured_text)
