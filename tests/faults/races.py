"""Sixteen processes at once: on one ledger, on one `--out`, on one `--resume`, for releases and for syntheses.

However they interleave, what was charged is what was released, one process has each directory, the others are told in
words, and what was put at the target by somebody else stays.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.injector import KILL, Point, decide
from tests.faults.supervisor import Child, Ended, ended_of, started, supervised
from tests.faults.tally import COUNTED, Tally, Tell, silent
from tests.faults.worlds import (
    LEDGER,
    NOTES,
    OUT,
    OWN,
    WORLDS,
    World,
    extra,
    fresh,
    gone_on,
    looked_at,
    operations_of,
    plainly,
    typed,
)

PROCESSES = 16
AFFORDED = 5  # what an account is opened with pays for so many
Say = Callable[[str, str], None]


def run(count: int, seed: int, tell: Tell = silent) -> Tally:
    """So many races of sixteen processes, of all kinds in turn."""
    chance = random.Random(seed)
    whole = Tally("races", 0)
    for number in range(count):
        name = list(WORLDS)[number % len(WORLDS)]
        whole += raced(name, RACES[number // len(WORLDS) % len(RACES)], chance)
        tell(whole.runs)
    return whole


def raced(name: str, race: Callable[[World, Path, random.Random, Say], list[Ended]], chance: random.Random) -> Tally:
    """Run one race in a world, and say which promises were broken."""
    world = WORLDS[name]
    broken: dict[str, str] = {}

    def say(what: str, why: str) -> None:
        broken.setdefault(what, why)

    with fresh(world) as folder:
        for ended in race(world, folder, chance, say):
            if "defect of tallytree" in ended.shown or "Traceback" in ended.shown:
                say("tracebacks", ended.shown)
            if ended.hung:
                say("hung", ended.shown)
        if (folder / NOTES).read_text() != OWN:
            say("lost", "a file of the user's own was changed")
    examples = [f"{name} {race.__name__}: {what}: {' '.join(why.split())[:400]}" for what, why in broken.items()]
    return Tally(name, 1, **{what: 1 for what in COUNTED if what in broken}, examples=tuple(examples))


# -------------------------------------------------------------------- the races


def on_one_ledger(world: World, folder: Path, chance: random.Random, say: Say) -> list[Ended]:
    """Each has a directory of its own, and the account affords five of them."""
    ends = together(folder, [world.words(out=f"{OUT}-{number}") for number in range(PROCESSES)], chance)
    released = {f"{OUT}-{number}" for number, ended in enumerate(ends) if ended.code == 0}
    state = looked_at(folder)
    there = {path.name for path in folder.glob(f"{OUT}-*")}
    if len(released) != AFFORDED or state.charges != AFFORDED:
        wrong = "overspent" if state.charges > AFFORDED or len(released) > state.charges else "lost"
        say(wrong, f"{len(released)} released, {state.charges} charged of {AFFORDED}: {ends[-1].shown}")
    if there != released:
        say("left_over", f"{sorted(there - released)}")
    ids = plainly(lambda: [identity(folder / name) for name in sorted(released)], folder)
    if sorted(ids) != sorted(each or "" for each in state.ids):
        say("lost", f"the ledger knows {state.ids}, released were {ids}")
    for ended in ends:
        if ended.code not in (0, 3) or (ended.code == 3 and "othing was spent" not in ended.shown):
            say("untold", f"exit code {ended.code}: {ended.shown}")
    return ends


def on_one_out(world: World, folder: Path, chance: random.Random, say: Say) -> list[Ended]:
    """All want the same directory: one has it and pays, the others are refused before they pay."""
    ends = together(folder, [world.words()] * PROCESSES, chance)
    _one_winner(world, folder, ends, say)
    return ends


def on_one_resume(world: World, folder: Path, chance: random.Random, say: Say) -> list[Ended]:
    """A run was killed after it was charged, and all go on from it: one does."""
    stop = chance.randrange(*_paid_and_unwritten(world))
    supervised(typed(*world.words()), folder, decide(Point(world.verb, KILL, stop), folder))
    before = looked_at(folder)
    ends = together(folder, [world.words("--resume")] * PROCESSES, chance)
    _one_winner(world, folder, ends, say)
    after = looked_at(folder)
    if after.paid[: len(before.paid)] != before.paid:
        say("lost", "what was measured is not what was published")
    return ends


def against_the_user(world: World, folder: Path, chance: random.Random, say: Say) -> list[Ended]:
    """While they all want the same directory, the user puts a file of their own there: it stays, and one goes on."""

    def intrude() -> None:
        time.sleep(chance.random())
        if not (folder / OUT).exists():
            try:
                with open(folder / OUT, "x") as file:
                    file.write(OWN)
            except FileExistsError:
                return
            os.write(1, b"put there")

    processes = [started(intrude, folder), *_started(folder, [world.words()] * PROCESSES, chance)]
    put, *ends = [ended_of(each, 120) for each in processes]
    if put.shown == "put there":
        own = folder / OUT
        if not own.is_file() or own.read_text() != OWN:
            say("lost", "the user's own file, which was put at the target, is gone")
        else:
            own.unlink()
        ends += gone_on(world, folder, max(ends, key=lambda each: "--resume" in each.shown).shown)
    _once(world, folder, ends, say)
    return ends


RACES = (on_one_ledger, on_one_out, on_one_resume, against_the_user)


# -------------------------------------------------------------------- judging


def _one_winner(world: World, folder: Path, ends: list[Ended], say: Say) -> None:
    winners = [ended for ended in ends if ended.code == 0]
    _once(world, folder, ends, say)
    if len(winners) != 1:
        say("overspent" if winners else "dead_ends", f"{len(winners)} of {len(ends)} say that they released it")
    for ended in ends:
        if ended.code not in (0, 2, 3):
            say("untold", f"exit code {ended.code}: {ended.shown}")


def _once(world: World, folder: Path, ends: list[Ended], say: Say) -> None:
    """There is one sound directory, charged once, and nothing else of ours."""
    state = looked_at(folder)
    if state.out != "sound":
        say("half_written" if state.out else "lost", f"{state.out}; {state.charges} charges; {ends[0].shown}")
    elif state.ids != (state.out_id,):
        say("overspent" if state.charges != 1 else "dead_ends", f"ids {state.ids}, released {state.out_id}")
    elif more := extra(world, folder):
        say("left_over", ", ".join(more))


def _paid_and_unwritten(world: World) -> tuple[int, int]:
    """The operations from the first after the measurements are charged to the last before the target is there."""
    operations = [str(operation) for operation in operations_of(world)]
    charged = operations.index(f"rename {LEDGER}.anchor") + 1
    return charged, operations.index(f"rename {OUT}")


def identity(folder: Path) -> str:
    """The id of a directory that verifies, or what is wrong."""
    from tallytree import verify

    found = verify(folder)
    return str(found.release_id) if found.ok else f"unsound: {found.faults}"


# -------------------------------------------------------------------- processes


def together(folder: Path, commands: list[tuple[str, ...]], chance: random.Random) -> list[Ended]:
    """Run commands at the same time, each in a process of its own."""
    return [ended_of(child, 120) for child in _started(folder, commands, chance)]


def _started(folder: Path, commands: list[tuple[str, ...]], chance: random.Random) -> list[Child]:
    """Processes that wait for each other and then run a command each, with a little luck in their order."""
    gate, opened = os.pipe()
    lead = [chance.random() * 0.05 for _ in commands]

    def waiting(words: tuple[str, ...], pause: float) -> Callable[[], None]:
        def work() -> None:
            os.close(opened)
            os.read(gate, 1)  # until it is closed
            time.sleep(pause)
            typed(*words)()

        return work

    children = [started(waiting(words, pause), folder) for words, pause in zip(commands, lead, strict=True)]
    os.close(opened)
    os.close(gate)
    return children
