"""Disturbs a release and a synthesis at their n-th change to a file, for each n, and judges what is left from outside.

Killed; interrupted (Ctrl-C); an error of the device, once; a disk that is full from there on; a file of the user's own
that appears at the target. Then a user goes on as the messages say, and must end with one directory that verifies, made
from the measurements that were paid for, charged once and known to the ledger. Counts beyond the number of operations
disturb the going on as well.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.supervisor import Decide, Ended, Operation, plain, supervised
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


@dataclass(frozen=True)
class Point:
    """Where a run is disturbed, and how; `again` disturbs the run that goes on, too."""

    world: str
    kind: str
    number: int
    again: Point | None = None

    def __str__(self) -> str:
        return f"{self.world} {self.kind} at {self.number}" + (f", then {self.again}" if self.again else "")


def run_kills(count: int, seed: int, tell: Tell = silent) -> Tally:
    """Killed at the n-th change to a file."""
    return _run("kills", (KILL,), count, seed, tell)


def run_faults(count: int, seed: int, tell: Tell = silent) -> Tally:
    """A device that fails once, or a disk that is full from there on."""
    return _run("faults", (BROKEN, FULL), count, seed, tell)


def run_interrupts(count: int, seed: int, tell: Tell = silent) -> Tally:
    """Ctrl-C at the n-th change to a file."""
    return _run("interrupts", (INTERRUPT,), count, seed, tell)


def run_intrusions(count: int, seed: int, tell: Tell = silent) -> Tally:
    """A file of the user's own appears at the target."""
    return _run("files of the user", (INTRUDE,), count, seed, tell)


def points(kinds: Sequence[str], count: int, seed: int) -> list[Point]:
    """Where to disturb: evenly over all operations; once each has had its turn, at random ones and twice."""
    every = [
        Point(name, kind, number)
        for kind in kinds
        for name, world in WORLDS.items()
        for number in places(operations_of(world))
    ]
    if count <= len(every):
        return [every[(2 * at + 1) * len(every) // (2 * count)] for at in range(count)]
    chance = random.Random(seed)

    def anywhere(name: str) -> Point:
        return Point(name, chance.choice(kinds), chance.randrange(len(operations_of(WORLDS[name]))))

    names = [chance.choice(list(WORLDS)) for _ in range(count - len(every))]
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


def _run(name: str, kinds: Sequence[str], count: int, seed: int, tell: Tell) -> Tally:
    chosen = points(kinds, count, seed)
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
        ended = supervised(typed(*world.words()), folder, decide(point, folder))
        return judged(world, folder, point, ended)


def decide(point: Point, folder: Path) -> Decide:
    """What to do about each operation, so that the point's fault happens."""
    mark = folder.parent / INTRUDED

    def answer(number: int, operation: Operation) -> int:
        if point.kind == FULL and number >= point.number:
            return errno.ENOSPC if operation.needs_room else 0
        if number != point.number:
            return 0
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
    if ended.code not in (0, -signal.SIGKILL):
        if before.charges and (NOTHING_SPENT.search(ended.shown) or "spent" not in ended.shown):
            say("untold", f"it was charged, and the message is: {ended.shown}")
        elif not before.charges and not NOTHING_SPENT.search(ended.shown):
            say("untold", f"nothing was charged, and the message is: {ended.shown}")
    _take_away(folder, say)  # the user puts what is theirs elsewhere, and goes on

    def first(words: tuple[str, ...]) -> Ended:
        if point.again is None:
            return plain(typed(*words), folder)
        again = supervised(typed(*words), folder, decide(point.again, folder))
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
