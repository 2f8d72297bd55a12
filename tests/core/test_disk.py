"""Lines of JSON that survive a kill: on disk before anything depends on them, whole, and one process' at a time."""

import json
import os
import subprocess
import sys

import pytest

from tallytree.core import disk
from tallytree.core.disk import JsonLines, sync


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "lines.jsonl"


def found(path):
    lines = JsonLines(path)
    lines.close()
    return [json.loads(line) for line in lines.lines]


def test_what_was_appended_is_there_when_the_file_is_opened_again(path):
    lines = JsonLines(path)
    assert lines.lines == []
    for number in range(3):
        lines.append({"ä": number, "text": "one\ntwo\rthree\u2028four"})
    lines.close()
    assert found(path) == [{"ä": number, "text": "one\ntwo\rthree\u2028four"} for number in range(3)]


@pytest.mark.parametrize("torn", [b"{", b'{"a": 1}', '{"a": "ä'.encode()[:-1]])
def test_a_torn_last_line_is_dropped_and_the_next_one_starts_anew(path, torn):
    path.parent.mkdir()
    path.write_bytes(b'{"a": 0}\n' + torn)
    lines = JsonLines(path)
    assert path.read_bytes() == b'{"a": 0}\n'
    lines.append({"a": 2})
    lines.close()
    assert found(path) == [{"a": 0}, {"a": 2}]


def test_nothing_follows_a_line_that_could_not_be_written(path, monkeypatch):
    lines = JsonLines(path)
    with monkeypatch.context() as patched:
        patched.setattr(disk.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(OSError, match="no space"):
            lines.append({"a": 1})
    with pytest.raises(OSError, match="earlier line"):
        lines.append({"a": 2})
    lines.close()
    assert {"a": 2} not in found(path)


def test_what_is_not_json_is_refused_and_leaves_the_file_usable(path):
    lines = JsonLines(path)
    with pytest.raises(ValueError, match="JSON"):
        lines.append({"a": float("nan")})
    lines.append({"a": 1})
    lines.close()
    assert found(path) == [{"a": 1}]


def test_after_closing_nothing_is_appended(path):
    lines = JsonLines(path)
    lines.close()
    with pytest.raises(OSError, match="closed"):
        lines.append({"a": 1})


OTHER = """
import sys
from pathlib import Path
from tallytree.core.disk import JsonLines
try:
    JsonLines(Path(sys.argv[1]))
except BlockingIOError:
    sys.exit(3)
"""


def test_two_processes_never_have_the_file_at_once(path):
    def other():
        return subprocess.run([sys.executable, "-c", OTHER, str(path)], check=False).returncode

    lines = JsonLines(path)
    lines.append({"a": 1})
    assert other() == 3
    lines.close()
    assert other() == 0


def test_every_line_is_flushed_before_append_returns(path, monkeypatch):
    flushed = []
    monkeypatch.setattr(disk.os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size))
    lines = JsonLines(path)
    before = len(flushed)
    assert before == 1  # the folder, which has the file's name now
    lines.append({"a": 1})
    assert flushed[before:] == [path.stat().st_size]
    lines.close()


def test_files_and_folders_are_synced_and_absent_ones_are_an_error(tmp_path):
    (tmp_path / "file").write_text("content")
    sync(tmp_path / "file")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "absent")


def test_room_is_on_disk_before_lines_need_it_and_is_given_back(path):
    lines = JsonLines(path)
    lines.append({"a": 1})
    lines.keep_room(100_000)
    assert path.stat().st_size > 100_000
    lines.append({"a": 2})
    with pytest.raises(OSError, match=r"large|space"):
        lines.keep_room(1 << 62)
    lines.append({"a": 3})
    lines.close()
    assert path.read_bytes() == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'


def test_a_process_that_is_killed_with_room_kept_leaves_its_lines(path):
    code = OTHER.replace("JsonLines(Path(sys.argv[1]))", "lines = JsonLines(Path(sys.argv[1]))") + (
        "lines.append({'a': 1})\nlines.keep_room(10_000)\nlines.append({'a': 2})\nimport os\nos._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert path.stat().st_size > 10_000
    assert found(path) == [{"a": 1}, {"a": 2}]
    assert path.read_bytes() == b'{"a": 1}\n{"a": 2}\n'


def test_a_last_line_of_which_only_the_end_is_on_disk_is_dropped(path):
    path.parent.mkdir()
    path.write_bytes(b'{"a": 0}\n' + bytes(7) + b": 1}\n" + bytes(100))
    assert found(path) == [{"a": 0}]
    assert path.read_bytes() == b'{"a": 0}\n'


def test_lines_that_are_cleared_are_gone(path):
    lines = JsonLines(path)
    lines.append({"a": 1})
    lines.clear()
    lines.append({"a": 2})
    lines.close()
    assert found(path) == [{"a": 2}]
