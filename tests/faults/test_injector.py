"""A release and a synthesis, disturbed at some of their changes to files; `make torture` takes all of them."""

import errno
import os
import signal

import pytest

from tests.faults import injector
from tests.faults.injector import DEAD, KILL, Point, decide, judged, places
from tests.faults.supervisor import Operation, can_supervise, let_through, supervised
from tests.faults.worlds import KEPT, LEDGER, OUT, SMALL, WORLDS, fresh, operations_of, typed

pytestmark = [
    pytest.mark.skipif(not can_supervise(), reason="this system does not let a process be asked about system calls"),
    pytest.mark.xdist_group("faults"),  # which share the worlds that are warm
]

SEED = 1


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (injector.run_kills, 9),
        (injector.run_faults, 9),
        (injector.run_interrupts, 5),
        (injector.run_dead_disks, 9),
        (injector.run_lack_of_memory, 5),
        (injector.run_killed_clean_ups, 7),
        (injector.run_intrusions, 4),
    ],
)
def test_nothing_is_lost_and_nothing_paid_twice(run, count):
    found = run(count, SEED, worlds=SMALL)
    assert found.runs == count
    assert not found.broken, "\n".join(found.examples)


def test_a_run_that_is_disturbed_twice_ends_in_one_release():
    for name in SMALL:
        world = WORLDS[name]
        last = len(operations_of(world)) - 1
        found = injector.disturbed(Point(name, KILL, last // 2, Point(name, KILL, last // 4)))
        assert not found.broken, "\n".join(found.examples)


def test_a_disk_that_fails_for_good_after_the_reservation_is_told_with_what_is_spent_and_how_to_go_on():
    world = WORLDS["release"]
    operations = [str(each) for each in operations_of(world)]
    _, written, *_ = (at for at, each in enumerate(operations) if each == "write mine.partial/journal.jsonl")
    with fresh(world) as folder:
        point = Point("release", DEAD, written)
        ended = supervised(typed(*world.words()), folder, decide(point, folder), looks=True)
        assert ended.code == 2
        assert "At most ε = 0.1 is spent." in ended.shown
        assert "tallytree release spec.toml --out mine --resume" in ended.shown
        for wrong in ("defect", "Nothing was spent"):
            assert wrong not in ended.shown
        found = judged(world, folder, point, ended)
        assert not found.broken, "\n".join(found.examples)


# -------------------------------------------------------------------- the harness itself


def test_every_change_to_a_file_is_asked_for(tmp_path):
    def work():
        os.mkdir("folder")
        with open("folder/new", "w") as file:
            file.write("text")
            file.flush()
            os.fsync(file.fileno())
        os.rename("folder/new", "folder/old")
        os.truncate("folder/old", 2)
        os.chmod("folder/old", 0o600)
        os.link("folder/old", "other")
        with open("other") as file:
            file.read()
        os.unlink("other")
        os.unlink("old", dir_fd=os.open("folder", os.O_RDONLY))
        os.rmdir("folder")

    ended = supervised(work, tmp_path, let_through)
    assert (ended.code, ended.shown) == (0, "")
    assert [str(each) for each in ended.operations] == [
        "mkdir folder",
        "open folder/new",
        "write folder/new",
        "sync folder/new",
        "rename folder/old",
        "truncate folder/old",
        "chmod folder/old",
        "link other",
        "unlink other",
        "unlink folder/old",
        "unlink folder" if ended.operations[-1].kind == "unlink" else "rmdir folder",
    ]


def test_a_fault_happens_where_it_is_put_and_before_the_change(tmp_path):
    def work():
        for name in "abc":
            os.mkdir(name)

    def at_b(answer):
        return lambda _, operation: answer if operation.path == "b" else 0

    failed = supervised(work, tmp_path, at_b(errno.ENOSPC))
    assert failed.code == 1
    assert "No space left on device: 'b'" in failed.shown
    assert sorted(os.listdir(tmp_path)) == ["a"]
    os.rmdir(tmp_path / "a")
    assert supervised(work, tmp_path, at_b(-signal.SIGKILL)).code == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == ["a"]
    os.rmdir(tmp_path / "a")
    assert "KeyboardInterrupt" in supervised(work, tmp_path, at_b(-signal.SIGINT)).shown
    assert "c" not in os.listdir(tmp_path)


def test_of_many_writes_in_a_row_some_are_taken_and_all_else_is():
    writes = [Operation("write", "a")] * 10
    assert places([Operation("open", "a"), *writes, Operation("sync", "a"), Operation("sync", "a")]) == [
        0,
        1,
        2,
        6,
        10,
        11,
        12,
    ]


def test_the_judge_sees_what_is_wrong():
    world = WORLDS["release"]
    with fresh(world) as folder:
        ended = supervised(typed(*world.words()), folder, let_through)
        point = Point("release", KILL, len(ended.operations))
        assert not judged(world, folder, point, ended).broken
        (folder / ".mine.x.writing").mkdir()
        assert judged(world, folder, point, ended).left_over == 1
        (folder / ".mine.x.writing").rmdir()
        with (folder / OUT / "counts.csv").open("a") as file:
            file.write("more\n")
        assert judged(world, folder, point, ended).half_written == 1
    with fresh(world) as folder:
        for out in (OUT, "another"):
            assert supervised(typed(*world.words(out=out)), folder, let_through).code == 0
        assert judged(world, folder, point, ended).overspent == 1
    with fresh(world) as folder:  # charged, and what was measured is thrown away
        stop = [str(each) for each in operations_of(world)].index(f"rename {LEDGER}.anchor") + 1
        again = supervised(typed(*world.words()), folder, decide(Point("release", KILL, stop), folder))
        assert again.code == -signal.SIGKILL
        for path in (folder / KEPT).iterdir():
            path.unlink()
        (folder / KEPT).rmdir()
        assert judged(world, folder, Point("release", KILL, stop), again).lost == 1
