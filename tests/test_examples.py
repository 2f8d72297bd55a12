"""The notebooks of `examples/` run from beginning to end, and are kept without what they showed."""

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
def test_it_is_kept_without_outputs(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


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
