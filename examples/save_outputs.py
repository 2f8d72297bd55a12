"""Run the notebooks and save them with their outputs: python examples/save_outputs.py

Charts are saved as SVG, so that a saved notebook loads nothing from the network. A notebook that fails is not saved.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
STARTUP = 'import altair\naltair.renderers.enable("svg")\n'


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a run in an empty folder, without times."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": folder}}, record_timing=False).execute()
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        startup = Path(folder) / "profile_default" / "startup"
        startup.mkdir(parents=True)
        (startup / "charts.py").write_text(STARTUP)
        os.environ["IPYTHONDIR"] = folder
        for path in sorted(HERE.glob("*.ipynb")):
            notebook = run(path)
            nbformat.write(notebook, path)
            print(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
