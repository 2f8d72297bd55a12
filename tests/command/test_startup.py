"""What the command does not load."""

import subprocess
import sys

BEGIN = """
import sys
from tallytree.command.main import main
sys.argv = ["tallytree", "demo", "--households", "1000", "--no-report", "--quiet"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def shown(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_a_release_loads_neither_pandas_nor_scipy(tmp_path):
    code = f"{BEGIN}\nprint(sorted({{'pandas', 'scipy', 'ibis'}} & set(sys.modules)))"
    assert shown(code, tmp_path) == "[]"


def test_an_engine_that_needs_pandas_has_it(tmp_path):
    code = f"""{BEGIN}
from tallytree.tables.engines import ibis
ibis()
import pandas
import pyarrow
print(pyarrow.array(pandas.Series([1.0, float("nan")])).null_count, "scipy" in sys.modules)"""
    assert shown(code, tmp_path) == "1 False"
