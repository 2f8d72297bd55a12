"""What is built for others to install: it installs into an empty environment, and runs there."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import tallytree

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("package")]


def run(*words, folder, **more):
    """A command in an environment that knows nothing of these sources."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TALLYTREE", "NUMBA"))}
    return subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, env={**kept, **more}, check=False
    )


def last_lines(done):
    return "\n".join((done.stdout + done.stderr).splitlines()[-4:])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)
    if done.returncode and "hatchling" in done.stdout + done.stderr and "No matching distribution" in done.stderr:
        pytest.skip(f"PIP CANNOT INSTALL THE BUILD BACKEND, so nothing was built: {last_lines(done)}")
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def test_the_files_have_the_version_the_license_and_what_type_checkers_look_for(built):
    sdist, wheel = built
    assert sdist.name == f"tallytree-{tallytree.__version__}.tar.gz"
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    own = f"tallytree-{tallytree.__version__}.dist-info"
    assert {f"{own}/licenses/LICENSE", "tallytree/py.typed", "tallytree/__init__.py"} <= names
    assert {name.split("/")[0] for name in names} == {"tallytree", own}
    with tarfile.open(sdist) as opened:
        packed = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "tests/test_package.py", "docs/tutorial.md"} <= packed


def test_the_wheel_installs_into_an_empty_environment_and_makes_a_release_there(built, tmp_path):
    _, wheel = built
    place = tmp_path / "empty"
    venv.create(place, with_pip=True)
    binaries = place / ("Scripts" if os.name == "nt" else "bin")
    options = ("install", "--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
    done = run(binaries / "python", "-m", "pip", *options, wheel, folder=tmp_path)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"PIP CANNOT INSTALL WHAT THE WHEEL NEEDS, so it was not run: {last_lines(done)}")
    assert done.returncode == 0, done.stdout + done.stderr
    command = binaries / "tallytree"
    assert run(command, "--version", folder=tmp_path).stdout.strip() == f"tallytree {tallytree.__version__}"
    done = run(command, "demo", "--households", 1000, folder=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All checks passed." in done.stdout
    done = run(command, "export", "demo-release", "--to", "csvw", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
