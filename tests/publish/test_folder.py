"""Put in place without replacing, replace what is listed and nothing else, and one run at a time for a directory."""

import errno
import os
import subprocess
import sys

import pytest

from tallytree.core import disk
from tallytree.core.errors import ReleaseError
from tallytree.publish import folder
from tallytree.publish.folder import claimed, put_in_place, write_json, write_whole


def fill(path):
    (path / "one.txt").write_text("one")
    return ["one.txt"]


def names(path):
    return sorted(each.name for each in path.iterdir())


@pytest.fixture(params=["one step", "no such step"])
def system(request, monkeypatch):
    """Both with Linux' renaming and without, as on other systems."""
    if request.param == "no such step":
        monkeypatch.setattr(disk, "_renamed", lambda *_: False)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing"])
@pytest.mark.parametrize("made_of", ["file", "folder"])
def test_what_has_the_name_already_stays_as_it_is(tmp_path, kind, made_of):
    made, target = tmp_path / "made", tmp_path / "target"
    if made_of == "folder":
        made.mkdir()
        (made / "x").write_text("new")
    else:
        made.write_text("new")
    if kind == "file":
        target.write_text("mine")
    elif kind == "folder":
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = target.lstat()
    with pytest.raises(ReleaseError, match="already exists"):
        put_in_place(made, target)
    assert target.lstat().st_ino == before.st_ino
    assert made.exists()
    if kind == "folder":
        assert names(target) == ["mine.txt"]


@pytest.mark.usefixtures("system")
def test_something_that_comes_while_a_release_is_written_is_not_deleted(tmp_path):
    target = tmp_path / "release"

    def slow(path):
        target.mkdir()
        (target / "mine.txt").write_text("my own work")
        return fill(path)

    with pytest.raises(ReleaseError, match="already exists"):
        write_whole(target, slow)
    assert (target / "mine.txt").read_text() == "my own work"
    assert names(tmp_path) == ["release"]


@pytest.mark.usefixtures("system")
def test_a_release_is_replaced_if_asked_and_nothing_else_is_left(tmp_path):
    target = tmp_path / "release"
    write_whole(target, fill)

    def other(path):
        (path / "two.txt").write_text("two")
        return ["two.txt"]

    write_whole(target, other, replace=True)
    assert names(target) == ["manifest.json", "two.txt"]
    assert names(tmp_path) == ["release"]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("when", ["before", "meanwhile", "at the last moment"])
@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_a_release_with_something_of_the_users_own_is_not_replaced(tmp_path, monkeypatch, when, what):
    target = tmp_path / "release"
    write_whole(target, fill)

    def add():
        if what == "a file":
            (target / "notes.txt").write_text("mine")
        else:
            (target / "notes.txt").mkdir()

    def late(path):
        if when == "meanwhile":
            add()
        return fill(path)

    if when == "before":
        add()
    if when == "at the last moment":  # after the last look, before the names are exchanged
        looked = []
        look = folder._files_to_replace

        def add_after(found, place):
            files = look(found, place)
            looked.append(found)
            if len(looked) == 2:
                add()
            return files

        monkeypatch.setattr(folder, "_files_to_replace", add_after)
    with pytest.raises(ReleaseError, match=r"notes\.txt"):
        write_whole(target, late, replace=True)
    assert names(target) == ["manifest.json", "notes.txt", "one.txt"]
    assert (target / "one.txt").read_text() == "one"


def test_a_folder_that_only_looks_like_a_release_is_not_replaced(tmp_path):
    target = tmp_path / "release"
    target.mkdir()
    write_json(target / "manifest.json", {"files": {}})
    (target / "thesis.txt").write_text("mine")
    with pytest.raises(ReleaseError, match=r"thesis\.txt"):
        write_whole(target, fill, replace=True)
    assert names(target) == ["manifest.json", "thesis.txt"]


def test_a_second_run_for_the_same_directory_is_refused_and_the_next_one_is_not(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with (
        claimed(tmp_path / "release"),
        pytest.raises(ReleaseError, match="another run is writing"),
        claimed(tmp_path / "link" / "release"),
    ):
        pytest.fail("both had it")
    with claimed(tmp_path / "release"), claimed(tmp_path / "other"):
        pass
    assert names(tmp_path) == ["link"]


def test_a_claim_ends_with_its_process(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from tallytree.publish.folder import claimed\n"
        "with claimed(Path(sys.argv[1])): os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "release")], check=True)
    assert names(tmp_path) == [".release.claim"]
    with claimed(tmp_path / "release"):
        pass
    assert names(tmp_path) == []


def test_a_directory_that_cannot_be_claimed_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match="spent nothing"), claimed(tmp_path / "file" / "release"):
        pass


def test_what_a_killed_run_was_writing_is_cleared_and_what_a_living_one_writes_is_not(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from tallytree.publish.folder import write_whole\n"
        "def fill(path):\n  (path / 'x').write_text('x'); os._exit(0)\n"
        "write_whole(Path(sys.argv[1]), fill)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "release")], check=True)
    (left,) = names(tmp_path)
    assert left.endswith(".writing")
    (tmp_path / ".release.mine.writing").mkdir()  # not one of ours
    living = []

    def slow(path):
        living.append(path)
        with claimed(tmp_path / "release"):
            assert path.exists()
        return fill(path)

    write_whole(tmp_path / "release", slow)
    assert names(tmp_path) == [".release.mine.writing", "release"]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "release", fill)
    assert names(tmp_path) == []
