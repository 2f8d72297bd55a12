"""What an engine spills is for its owner alone, is no plain text, and does not outlive the next run."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tallytree.tables.source import LOCK, PREFIX, remove_stale, spill_directory, workspace

SECRET = b"SECRET-4711"

SPILL = """
import sys, time
from tallytree.tables.source import workspace
with workspace("60MB") as connect:
    connection = connect().con
    connection.execute("set threads = 1")
    rows = "select 'SECRET-4711-' || i || repeat('x', 50) as home, hash(i) as place from range(1500000) t(i)"
    connection.execute(f"create temp table spilled as {rows} order by place")
    print("spilled", flush=True)
    time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals, owners and modes are those of POSIX")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_killed_run_leaves_no_plain_text_and_the_next_run_removes_it(temporary):
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", SPILL], env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"spilled\n"
        (left,) = temporary.iterdir()
        remove_stale()  # the other process is alive
        files = [path for path in left.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) > 20_000_000
        running.send_signal(signal.SIGKILL)
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    for path in files:
        assert SECRET not in path.read_bytes()  # it was there a million times, before spill files were encrypted
        if sys.platform == "linux":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with workspace(None):
        (now,) = temporary.iterdir()
        assert now != left
    assert list(temporary.iterdir()) == []


def directory(place: Path, mode: int = 0o700) -> Path:
    place.mkdir()
    place.chmod(mode)
    return place


def locked_by_nobody(place: Path, mode: int = 0o600) -> Path:
    (place / LOCK).touch()
    (place / LOCK).chmod(mode)
    return place


def test_nothing_but_a_stale_directory_of_ours_is_removed(temporary, tmp_path_factory):
    elsewhere = locked_by_nobody(directory(tmp_path_factory.mktemp("home") / (PREFIX + "target")))
    stale = locked_by_nobody(directory(temporary / (PREFIX + "stale")))
    (stale / "rows.tmp").touch()
    (stale / "link").symlink_to(elsewhere)
    locked_by_nobody(directory(temporary / "tallytree-other"))  # another name
    locked_by_nobody(directory(temporary / (PREFIX + "open"), 0o755))  # not ours: ours are 700
    locked_by_nobody(directory(temporary / (PREFIX + "readable")), 0o644)
    directory(temporary / (PREFIX + "unlocked"))  # perhaps made just now
    (temporary / (PREFIX + "file")).touch()
    (temporary / (PREFIX + "link")).symlink_to(elsewhere)
    linked = directory(temporary / (PREFIX + "linked-lock"))
    (linked / LOCK).symlink_to(elsewhere / LOCK)
    before = set(temporary.iterdir())
    with spill_directory() as used:
        remove_stale()
        assert set(temporary.iterdir()) == before - {stale} | {Path(used)}
    assert set(temporary.iterdir()) == before - {stale}
    assert (elsewhere / LOCK).exists()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_left_alone(temporary):
    theirs = locked_by_nobody(directory(temporary / (PREFIX + "theirs")))
    os.chown(theirs, 12345, 12345)
    remove_stale()
    assert theirs.exists()
