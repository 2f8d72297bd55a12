"""Disturbs releases and syntheses at their n-th change to a file, for each n, and judges what is left from outside.

Killed; interrupted (Ctrl-C); an error of the device, once or from there on; a disk that is full from there on; no more
memory from there on; a file of the user's own that appears at the target; killed while an error is cleaned up after.
Then a user goes on as the messages say, and must end with one directory that verifies, made from the measurements that
were paid for, charged once and known to the ledger. Counts beyond the number of operations disturb the going on as
well.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.supervisor import STARVE, Decide, Ended, Operation, plain, supervised
from tests.faults.tally import COUNTED, Tally, Tell, silent
from tests.faults.worlds import (
    NOTES,
    NOTHING_SPENT,
    OUT,
    OWN,
    WORLDS,
    World,
    extra,
    fresh,
    gone_on,
    looked_at,
    operations_of,
    typed,
)

FEW = 20
INTRUDED = "intruded"  # a file outside the world: the user's own was put at the target
KILL, INTERRUPT, BROKEN, FULL, INTRUDE = "kill", "interrupt", "broken", "full", "intrude"
DEAD, STARVED = "dead disk", "no memory"
CODES = (0, 2, 3, 130, -signal.SIGKILL)  # with which the command may end
NOT_KNOWN = re.compile("not known|may be reserved and spent")
FIRST_CHANGES = 12  # of cleaning up


@dataclass(frozen=True)
class Point:
    """Where a run is disturbed, and how; killed so many changes later, if `killed_after`.

    `again` disturbs the run that goes on, too.
    """

    world: str
    kind: str
    number: int
    again: Point | None = None
    killed_after: int = 0

    def __str__(self) -> str:
        killed = f", killed {self.killed_after} changes later" if self.killed_after else ""
        return f"{self.world} {self.kind} at {self.number}{killed}" + (f", then {self.again}" if self.again else "")


def run_kills(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """Killed at the n-th change to a file."""
    return _run("kills", points((KILL,), count, seed, worlds), tell)


def run_faults(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """A device that fails once, or a disk that is full from there on."""
    return _run("faults", points((BROKEN, FULL), count, seed, worlds), tell)


def run_dead_disks(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """A device that fails from the n-th change on, until the user goes on."""
    return _run("dead disks", points((DEAD,), count, seed, worlds), tell)


def run_lack_of_memory(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """No more memory from the system, from the n-th change on."""
    return _run("lack of memory", points((STARVED,), count, seed, worlds), tell)


def run_killed_clean_ups(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """An error or Ctrl-C at the n-th change, and a kill at one of the next changes: while the run cleans up."""
    chance = random.Random(seed)
    errors = points((BROKEN, INTERRUPT), count, seed, worlds)
    chosen = [replace(point, again=None, killed_after=chance.randint(1, FIRST_CHANGES)) for point in errors]
    return _run("killed clean-ups", chosen, tell)


def run_interrupts(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """Ctrl-C at the n-th change to a file."""
    return _run("interrupts", points((INTERRUPT,), count, seed, worlds), tell)


def run_intrusions(count: int, seed: int, tell: Tell = silent, worlds: Sequence[str] = tuple(WORLDS)) -> Tally:
    """A file of the user's own appears at the target."""
    return _run("files of the user", points((INTRUDE,), count, seed, worlds), tell)


def points(kinds: Sequence[str], count: int, seed: int, worlds: Sequence[str] = tuple(WORLDS)) -> list[Point]:
    """Where to disturb: evenly over all operations; once each has had its turn, at random ones and twice."""
    every = [
        Point(name, kind, number) for kind in kinds for name in worlds for number in places(operations_of(WORLDS[name]))
    ]
    if count <= len(every):
        return [every[(2 * at + 1) * len(every) // (2 * count)] for at in range(count)]
    chance = random.Random(seed)

    def anywhere(name: str) -> Point:
        return Point(name, chance.choice(kinds), chance.randrange(len(operations_of(WORLDS[name]))))

    names = [chance.choice(list(worlds)) for _ in range(count - len(every))]
    pairs = [(anywhere(name), anywhere(name)) for name in names]
    return every + [Point(first.world, first.kind, first.number, again) for first, again in pairs]


def places(operations: Sequence[Operation]) -> list[int]:
    """The operations worth a run: of many writes in a row to one file the first two, one of the middle and the last."""
    chosen: list[int] = []
    start = 0
    for at in range(1, len(operations) + 1):
        if at == len(operations) or operations[at] != operations[start] or operations[at].kind != "write":
            chosen += sorted({start, min(start + 1, at - 1), (start + at) // 2, at - 1})
            start = at
    return sorted({each for each in chosen if each < len(operations)})


def _run(name: str, chosen: Sequence[Point], tell: Tell) -> Tally:
    whole = Tally(name, 0)
    for found in spread(disturbed, chosen):
        whole += found
        tell(whole.runs)
    return whole


def spread(work: Callable[[Point], Tally], items: Sequence[Point]) -> Iterator[Tally]:
    """`work` of each item, over the processors; in this process where there are few."""
    if len(items) < FEW:
        yield from map(work, items)
        return
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        yield from pool.imap_unordered(work, items, chunksize=4)


# -------------------------------------------------------------------- one run


def disturbed(point: Point) -> Tally:
    """Disturb one run, go on, and say which promises were broken."""
    world = WORLDS[point.world]
    with fresh(world) as folder:
        ended = supervised(typed(*world.words()), folder, decide(point, folder), looks=point.kind == DEAD)
        return judged(world, folder, point, ended)


def decide(point: Point, folder: Path) -> Decide:
    """What to do about each operation, so that the point's fault happens."""
    mark = folder.parent / INTRUDED

    def answer(number: int, operation: Operation) -> int:
        if point.kind == FULL and number >= point.number:
            return errno.ENOSPC if operation.needs_room else 0
        if point.kind == DEAD and number >= point.number:
            return errno.EIO
        if operation.kind == "look":
            return 0
        if point.killed_after and number == point.number + point.killed_after:
            return -signal.SIGKILL
        if number != point.number:
            return 0
        if point.kind == STARVED:
            return STARVE
        if point.kind == INTRUDE:
            if not (folder / OUT).exists():
                (folder / OUT).write_text(OWN)
                mark.touch()
            return 0
        return {KILL: -signal.SIGKILL, INTERRUPT: -signal.SIGINT, BROKEN: errno.EIO}[point.kind]

    return answer


def judged(world: World, folder: Path, point: Point, ended: Ended) -> Tally:
    """Count what was broken by a disturbed run, and by going on from it."""
    broken: dict[str, str] = {}

    def say(what: str, why: str) -> None:
        broken.setdefault(what, why)

    at = ended.operations[point.number] if point.number < len(ended.operations) else "its end"
    before = looked_at(folder)
    if before.out not in ("", "sound", "own"):
        say("half_written", before.out)
    if before.charges > 1:
        say("overspent", f"{before.charges} charges")
    crashed = point.kind == STARVED and ended.code < 0  # of a library that ends the process: as good as a kill
    if ended.code not in CODES and not crashed:
        say("tracebacks", f"exit code {ended.code}: {ended.shown}")
    # A command that cannot read the disk, or was stopped while it wrote the ledger, says so: going on pays once.
    unknowable = point.kind in (DEAD, INTERRUPT) and bool(NOT_KNOWN.search(ended.shown))
    if ended.code not in (0, -signal.SIGKILL) and not crashed:
        if before.charges and (NOTHING_SPENT.search(ended.shown) or "spent" not in ended.shown):
            say("untold", f"it was charged, and the message is: {ended.shown}")
        elif not before.charges and not NOTHING_SPENT.search(ended.shown) and not unknowable:
            say("untold", f"nothing was charged, and the message is: {ended.shown}")
    _take_away(folder, say)  # the user puts what is theirs elsewhere, and goes on

    def first(words: tuple[str, ...]) -> Ended:
        if point.again is None:
            return plain(typed(*words), folder)
        again = supervised(typed(*words), folder, decide(point.again, folder), looks=point.again.kind == DEAD)
        _take_away(folder, say)
        return again

    ends = gone_on(world, folder, ended.shown, first)
    after = looked_at(folder)
    if after.trouble:
        say("dead_ends", after.trouble)
    last = (ends[-1].shown if ends else ended.shown).strip()
    if after.out != "sound":
        say("lost" if after.charges else "dead_ends", f"no way on: {last}")
    elif after.ids != (after.out_id,):
        wrong = "overspent" if after.charges != 1 else "dead_ends"
        say(wrong, f"{after.charges} charges, ids {after.ids}, released {after.out_id}: {last}")
    elif after.paid[: len(before.paid)] != before.paid:
        say("lost", "what was measured is not what was published")
    if (folder / NOTES).read_text() != OWN:
        say("lost", "a file of the user's own was changed")
    if after.out == "sound" and extra(world, folder):  # the page is made again, which clears what was left of it
        ends.append(plain(typed("report", OUT), folder))
    if after.out == "sound" and (more := extra(world, folder)):
        say("left_over", ", ".join(more))
    for each in (ended, *ends):
        if "defect of tallytree" in each.shown or "Traceback" in each.shown:
            say("tracebacks", each.shown)
        if each.hung:
            say("hung", each.shown)
    examples = [f"{point} ({at}): {what}: {' '.join(why.split())[:400]}" for what, why in broken.items()]
    return Tally(str(point), 1, **{what: 1 for what in COUNTED if what in broken}, examples=tuple(examples))


def _take_away(folder: Path, say: Callable[[str, str], None]) -> None:
    """The user takes their own file from the target, if it was put there; it must still be what it was."""
    mark, own = folder.parent / INTRUDED, folder / OUT
    if mark.exists():
        mark.unlink()
        if own.is_file() and own.read_text() == OWN:
            own.unlink()
        else:
            say("lost", "the user's own file, which was put at the target, is gone")
