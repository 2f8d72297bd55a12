"""A synthesis that is killed at any file operation: charged once, no round drawn twice, and always a way on."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tallytree import Ledger, ReleaseError, verify
from tallytree.command import make
from tallytree.command.command_options import SynthesisOptions
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.privacy.journal import Journal
from tallytree.publish.run_folder import RunFolder
from tests.command.test_synthesis_spec import GOOD, HOUSEHOLDS, PERSONS

SPEC = GOOD.replace("rho = 0.5", 'rho = 0.5\nledger = "ledger.db"').replace("rounds = 3", "rounds = 2")
EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "os.chmod", "sqlite3.connect"}
STEPS = (os, "fsync"), (os, "write"), (os, "ftruncate"), (os, "posix_fallocate")


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """A folder with spec, data and a ledger, and the households as read once: a forked process cannot ask DuckDB."""
    folder = tmp_path_factory.mktemp("homes")
    (folder / "households.csv").write_text(HOUSEHOLDS)
    (folder / "persons.csv").write_text(PERSONS)
    (folder / "synth.toml").write_text(SPEC)
    spec = SynthesisSpec.load(folder / "synth.toml")
    Ledger(folder / "ledger.db").open("homes-2020", spec.budget, spec.neighbours())
    households = spec.read()
    warm = folder.with_name("warm")  # kernels are loaded here, once, and not in each process
    shutil.copytree(folder, warm)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SynthesisSpec, "read", lambda self, *_: households)
        synthesized(warm, resumed=False)
    assert verify(warm / "out").ok
    return folder, households


def synthesized(folder: Path, *, resumed: bool) -> None:
    given = {"resume": resumed, "no_report": True, "quiet": True}
    make.run_and_ask(SynthesisOptions(spec=folder / "synth.toml", out=folder / "out", **given))


def run(folder: Path, households, *, resumed: bool, kill_at: int | None = None) -> tuple[int, int]:
    """Run the command in a forked process; how it ended, and how many file operations it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        counted = os.read(reading, 100)
        os.close(reading)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(counted or 0)
    code, seen = 70, 0

    def step() -> None:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple) -> None:
        if event in EVENTS or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE):
            step()

    def counting(real):
        def counted(*arguments):
            step()
            done = real(*arguments)
            step()
            return done

        return counted

    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        SynthesisSpec.read = lambda self, *_: households
        report = os.write
        for where, name in STEPS:
            setattr(where, name, counting(getattr(where, name)))
        sys.addaudithook(hook)
        synthesized(folder, resumed=resumed)
        kill_at = None
        report(writing, str(seen).encode())
        code = 0
    except ReleaseError:
        code = 2
    finally:
        os._exit(code)


def drawn(folder: Path) -> list:
    """The results that a journal holds."""
    return [past.result for past in Journal(folder / "out.partial", look=True).rounds]


def is_begun(folder: Path) -> bool:
    """Does the folder beside the directory say that there is something to go on with?"""
    state = RunFolder(folder / "out.partial").state()
    return state.spent or state.stage == "finished"


def is_done(folder: Path) -> bool:
    stage = RunFolder(folder / "out.partial").state().stage
    return stage == "nothing" and (folder / "out").exists()


def killed_and_finished(homes, folder: Path, kill_at: int, again_at: int | None = None) -> None:
    origin, households = homes
    shutil.copytree(origin, folder)
    assert run(folder, households, resumed=False, kill_at=kill_at)[0] == -signal.SIGKILL
    before = drawn(folder)
    if again_at is not None and not is_done(folder):
        run(folder, households, resumed=is_begun(folder), kill_at=again_at)
    done = is_done(folder)
    ended, _ = run(folder, households, resumed=done or is_begun(folder))
    assert ended == (2 if done else 0), kill_at  # what is done already cannot be resumed
    found = verify(folder / "out")
    assert found.ok, found.faults
    (spending,) = Ledger(folder / "ledger.db").account("homes-2020").spendings
    assert spending.release_id == found.release_id
    assert len(spending.rounds) == len({begun.mark for begun in spending.rounds})
    assert sum(begun.cost for begun in spending.rounds) == spending.budget.rho
    assert not list(folder.glob("*.partial"))
    assert not list(folder.glob(".*"))
    assert len(before) <= len(spending.rounds)
    shutil.rmtree(folder)


def operations(homes, folder: Path) -> int:
    shutil.copytree(homes[0], folder)
    code, counted = run(folder, homes[1], resumed=False)
    assert code == 0
    return counted


def test_a_kill_at_any_step_leaves_a_way_on_and_charges_once(homes, tmp_path):
    every = operations(homes, tmp_path / "whole")
    assert every > 50
    step = 1 if os.environ.get("EVERY_STEP") else max(1, every // 9)
    for kill_at in range(1, every + 1, step):
        killed_and_finished(homes, tmp_path / "killed", kill_at)


def test_a_run_that_is_killed_twice_is_finished_too(homes, tmp_path):
    every = operations(homes, tmp_path / "whole")
    for kill_at in range(5, every, every // 5):
        killed_and_finished(homes, tmp_path / "killed", kill_at, again_at=kill_at // 2 + 3)
