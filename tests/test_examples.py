"""The notebooks of `examples/` run from beginning to end, and are saved with their outputs."""

import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


def named(path):
    return path.stem


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["city", "mechanisms", "taxi"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_it_is_saved_with_its_outputs_and_loads_nothing(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    addresses = set(re.findall(r"https?://[^/\"]+", path.read_text(encoding="utf-8")))
    assert addresses <= {"http://www.w3.org"}  # names of SVG
    assert tempfile.gettempdir() not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_it_runs_and_values_show_themselves(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert sum("text/html" in data for data in shown) >= 2
    assert any("vega" in data.get("text/html", "") for data in shown)
    errors = [
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.get("name") == "stderr"
    ]
    assert not errors
