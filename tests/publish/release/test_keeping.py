"""However a run ends, its folder says how far it came, going on pays once, and one release comes of it."""

import errno
import importlib
import os
import resource
import shutil
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest

from tallytree import (
    Budget,
    BudgetError,
    Hierarchy,
    Ledger,
    Release,
    ReleaseError,
    SpecError,
    one_entity,
    release,
    resume,
    verify,
)
from tallytree.privacy import Neighbours
from tallytree.privacy.journal import Journal
from tallytree.privacy.ledger import Expense
from tallytree.publish import run_folder
from tallytree.publish.release import release_run as making
from tallytree.publish.release.measurements_file import load_measurements, room_for, save_measurements
from tallytree.publish.run_folder import NotRecorded, RunFolder, SpentError, record
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.example import made_up

border = importlib.import_module("tallytree.privacy.run")
PEOPLE = made_up(5, public_totals=False, name="people")


class Killed(BaseException):
    """As if the process ended here: nothing that was to follow is done."""


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=2), Neighbours.of(PEOPLE, one_entity()))
    return ledger


@pytest.fixture
def made(tmp_path, ledger):
    """A release of ε = 1, with its folder."""

    def made(**more):
        how = {"budget": Budget(epsilon=1), "unit": one_entity(), "keep": tmp_path / "kept", "intervals": "none"}
        return release(PEOPLE, **{**how, "ledger": ledger, **more})

    return made


def spendings(ledger):
    return ledger.account("people").spendings


def kill(*_, **__):
    raise Killed


# -------------------------------------------------------------------- every state has a way forward


def test_a_kill_before_reserving_has_spent_nothing_and_the_next_run_begins(tmp_path, made, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "reserve", kill)
        patch.setattr(RunFolder, "give_up", lambda _: None)  # a process that is killed clears nothing away
        with pytest.raises(Killed):
            made()
    state = RunFolder(tmp_path / "kept").state()
    assert (state.stage, state.spent) == ("begun", False)
    assert state.in_words() == "Nothing was spent."
    made().save(tmp_path / "release")
    assert len(spendings(ledger)) == 1
    assert verify(tmp_path / "release").ok


@pytest.mark.parametrize("where", ["drawing", "keeping", "syncing", "renaming"])
def test_a_kill_after_reserving_is_gone_on_from_and_paid_once(tmp_path, made, ledger, monkeypatch, where):
    with monkeypatch.context() as patch:
        if where == "drawing":
            patch.setattr(border, "_answered", kill)
        elif where == "keeping":
            patch.setattr(run_folder, "write_measurements", kill)
        elif where == "syncing":
            patch.setattr(RunFolder, "write_over", lambda kept, *_: (kept.write("spec.json", {}), kill()))
        else:
            patch.setattr(
                RunFolder,
                "write_over",
                lambda kept, room, found, *_: (save_measurements(found, kept.folder / room), kill()),
            )
        with pytest.raises(Killed):
            made()
    state = RunFolder(tmp_path / "kept").state()
    assert (state.stage, state.spent) == ("reserved", True)
    assert f"ε = 1 of 'people' in {ledger.path} is spent. No measurement was published" in state.in_words()
    with pytest.raises(ReleaseError, match="no measurements"):
        resume(tmp_path / "kept")
    done = made()
    done.save(tmp_path / "release")
    assert len(spendings(ledger)) == 1
    assert spendings(ledger)[0].rounds[0].mark == done.measurements.mark


def test_a_kill_before_the_ledger_knows_the_measurements_goes_on_with_them(tmp_path, made, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", kill)
        with pytest.raises(Killed):
            made()
    assert RunFolder(tmp_path / "kept").state().stage == "measured"
    assert not spendings(ledger)[0].rounds
    with pytest.raises(ReleaseError, match="Continue it with resume"):
        made()
    resume(tmp_path / "kept", intervals="none").save(tmp_path / "release")
    assert len(spendings(ledger)) == 1
    assert len(spendings(ledger)[0].rounds) == 1


def test_of_two_copies_that_both_draw_one_can_go_on(tmp_path, made, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(border, "_answered", kill)
        with pytest.raises(Killed):
            made()
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", kill)
        with pytest.raises(Killed):
            made()
    first = made(keep=tmp_path / "copy")
    with pytest.raises(BudgetError, match="other measurements"):
        resume(tmp_path / "kept")
    assert len(spendings(ledger)) == 1
    assert [each.mark for each in spendings(ledger)[0].rounds] == [first.measurements.mark]


def test_measurements_that_were_deleted_are_not_drawn_again(tmp_path, made, monkeypatch):
    made()
    (tmp_path / "kept" / "measurements.parquet").unlink()
    monkeypatch.setattr(border, "_answered", kill)
    with pytest.raises(ReleaseError, match=r"is spent\. The measurements that this paid for are not in"):
        made()


def test_a_folder_that_was_begun_for_another_account_is_not_gone_on_from(tmp_path, made, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(border, "_answered", kill)
        with pytest.raises(Killed):
            made()
    other = Ledger(tmp_path / "other.db")
    other.open("people", Budget(epsilon=2), Neighbours.of(PEOPLE, one_entity()))
    with pytest.raises(ReleaseError, match="was begun with the account 'people' in"):
        made(ledger=other)
    assert not spendings(other)
    with pytest.raises(ReleaseError, match="begun with another budget"):
        made(budget=Budget(epsilon="0.5"))
    assert len(spendings(ledger)) == 1


def test_a_folder_of_the_users_own_is_left_alone(tmp_path, made, ledger):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.txt").write_text("mine")
    with pytest.raises(ReleaseError, match="does not hold an interrupted run"):
        made()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["thesis.txt"]
    assert not spendings(ledger)


def test_noise_that_would_not_fit_is_refused_before_anything_is_spent(tmp_path, made, ledger):
    for budget in (Budget(epsilon="1e-40"), Budget(rho="1e-30")):
        for noise in ("tallytree", "opendp"):
            with pytest.raises(SpecError, match=r"the most that is supported|may not fit into 64-bit integers"):
                made(budget=budget, noise_source=noise, ledger=None)
            with pytest.raises((SpecError, BudgetError)):
                made(budget=budget, noise_source=noise)
    assert not spendings(ledger)
    assert not (tmp_path / "kept").exists()


def test_a_race_that_is_lost_at_reserving_leaves_no_folder(tmp_path, made, ledger, monkeypatch):
    begin = Journal.begin

    def meanwhile(journal, facts):
        for _ in range(2):
            ledger.reserve(Expense("people", Budget(epsilon=1), Neighbours.of(PEOPLE, one_entity())))
        begin(journal, facts)

    monkeypatch.setattr(Journal, "begin", meanwhile)
    with pytest.raises(BudgetError, match="Nothing was changed"):
        made()
    assert not (tmp_path / "kept").exists()


def test_a_second_run_with_the_same_folder_is_refused_before_it_pays(tmp_path, made, ledger):
    with Journal(tmp_path / "kept"), pytest.raises(ReleaseError, match="another run is working in"):
        made()
    assert not spendings(ledger)


# -------------------------------------------------------------------- in Python, with nothing said about a folder


@pytest.mark.parametrize("place", ["_answered", "estimate_release"])
def test_an_interrupt_after_the_reservation_says_what_was_spent_and_where_to_go_on(
    tmp_path, made, ledger, monkeypatch, place
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(border if place == "_answered" else making, place, interrupt)
        with pytest.raises(KeyboardInterrupt) as stop:
            made(keep=None)
    (folder,) = (tmp_path / "ledger.db.runs").iterdir()
    (note,) = stop.value.__notes__
    assert f"ε = 1 of 'people' in {ledger.path} is spent." in note
    assert f"keep={str(folder)!r}" in note
    done = made(keep=folder) if place == "_answered" else resume(folder, intervals="none")
    done.save(tmp_path / "release")
    assert len(spendings(ledger)) == 1
    assert not (tmp_path / "ledger.db.runs").exists()


def test_measurements_that_a_ledger_paid_for_are_kept_until_the_release_is_saved(tmp_path, made, ledger):
    done = made(keep=None)
    (folder,) = (tmp_path / "ledger.db.runs").iterdir()
    assert resume(folder, intervals="none").total == done.total
    release_id = done.save(tmp_path / "release")
    assert spendings(ledger)[0].release_id == release_id
    assert not (tmp_path / "ledger.db.runs").exists()


def test_an_interrupt_before_the_reservation_leaves_nothing(tmp_path, made, ledger, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "reserve", interrupt)
    with pytest.raises(KeyboardInterrupt) as stop:
        made(keep=None)
    assert stop.value.__notes__ == ["Nothing was spent."]
    assert not spendings(ledger)
    assert not list(tmp_path.glob("ledger.db.runs/*"))


# -------------------------------------------------------------------- a full disk


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_without_room_is_found_out_before_anything_is_spent(tmp_path, made, ledger, monkeypatch):
    monkeypatch.setattr(RunFolder, "take_room", full)
    message = (
        r"cannot reserve [\d,]+ bytes for measurements in the folder .*: No space left on device\. Nothing was spent\."
    )
    with pytest.raises(ReleaseError, match=message):
        made()
    assert not spendings(ledger)
    assert not (tmp_path / "kept").exists()


def test_a_disk_that_is_full_after_spending_says_so_and_is_gone_on_from(tmp_path, made, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_measurements", full)
        message = r"No space left on device\. ε = 1 of 'people' .* is spent\. No measurement was published"
        with pytest.raises(SpentError, match=message):
            made()
    made().save(tmp_path / "release")
    assert len(spendings(ledger)) == 1


@pytest.mark.parametrize("mechanism", ["joint-counts", "joint-cumulative", "coc-matching", "pgsr-hierarchical-dp"])
@pytest.mark.parametrize("epsilon", ["1e-10", "0.001", "100"])
def test_the_room_that_is_taken_is_enough(tmp_path, mechanism, epsilon):
    regions = Hierarchy.from_edges([("all", ""), *((f"region number {number}", "all") for number in range(2000))])
    counts = np.ones((2000, 20), dtype=np.int64)
    data = GroupSizes(regions, 19, Sealed(counts), leaf_totals=counts.sum(axis=1))
    neighbours, chosen, plan = making.decide(data, making.Design(Budget(epsilon=epsilon), one_entity(), mechanism))
    room = room_for(data.hierarchy, neighbours, plan, data.region_totals)
    save_measurements(border.measure(data, plan, derive_facts=chosen.derive_facts), tmp_path / "file")
    assert (tmp_path / "file").stat().st_size <= room


def test_measurements_are_written_over_the_room_and_synced_before_they_count(tmp_path, made, monkeypatch):
    steps = []
    inode = {}
    write_over, sync, fsync, replace = RunFolder.write_over, run_folder.sync, os.fsync, run_folder.Path.replace

    def watched(kept, *given):
        inode["room"] = (kept.folder / "room").stat().st_ino
        steps.clear()
        write_over(kept, *given)
        inode["file"] = (kept.folder / "measurements.parquet").stat().st_ino
        assert steps[-3:] == ["fsync", "room", "sync kept"]

    monkeypatch.setattr(run_folder.os, "fsync", lambda number: (steps.append("fsync"), fsync(number)))
    monkeypatch.setattr(
        run_folder.Path, "replace", lambda path, other: (steps.append(path.name), replace(path, other))[1]
    )

    def synced(path):
        sync(path)
        steps.append(f"sync {path.name}")
        if steps[-2:] == ["fsync", f"sync {path.name}"]:
            del steps[-2]

    monkeypatch.setattr(run_folder, "sync", synced)
    monkeypatch.setattr(RunFolder, "write_over", watched)
    made()
    assert inode["room"] == inode["file"]


@contextmanager
def files_of_at_most(size):
    """The system refuses longer files, as a disk does that has no more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


CROWDED = GroupSizes(
    Hierarchy.from_edges([("all", "")]), 6, Sealed(np.full((1, 6), 50_000, np.int64)), name="people"
)  # whose list of sizes takes about 2 MB
LISTS = {"mechanism": "coc-matching", "options": {"methods": ["sorted-sizes"], "totals_share": "1/10"}}


def test_totals_that_ask_for_longer_lists_than_the_disk_holds_are_kept_and_not_drawn_again(tmp_path, ledger):
    how = {"budget": Budget(epsilon=1), "unit": one_entity(), "keep": tmp_path / "kept", "intervals": "none"}
    first = []
    with files_of_at_most(1_000_000):
        for _ in range(3):
            with pytest.raises(SpentError, match=r"is spent\. .* spends nothing more"):
                release(CROWDED, ledger=ledger, **how, **LISTS)
            first.append(load_measurements(tmp_path / "kept" / "first.parquet").measured[0].values.tolist())
    assert first[0] == first[1] == first[2]
    made = release(CROWDED, ledger=ledger, **how, **LISTS)
    assert made.measurements.measured[0].values.tolist() == first[0]
    assert len(spendings(ledger)) == 1


def test_without_a_ledger_too_totals_are_kept_and_not_drawn_again(tmp_path):
    how = {"budget": Budget(epsilon=1), "unit": one_entity(), "keep": tmp_path / "kept", "intervals": "none"}
    with files_of_at_most(1_000_000), pytest.raises(SpentError, match="No measurement was published"):
        release(CROWDED, **how, **LISTS)
    first = load_measurements(tmp_path / "kept" / "first.parquet").measured[0].values.tolist()
    assert release(CROWDED, **how, **LISTS).measurements.measured[0].values.tolist() == first


def test_a_run_with_totals_goes_on_as_it_was_begun(tmp_path, ledger):
    how = {"budget": Budget(epsilon=1), "unit": one_entity(), "keep": tmp_path / "kept", "intervals": "none"}
    with files_of_at_most(1_000_000), pytest.raises(SpentError):
        release(CROWDED, ledger=ledger, **how, **LISTS)
    other = {**LISTS, "options": {**LISTS["options"], "totals_share": "1/5"}}
    with pytest.raises(ReleaseError, match="begun with another plan"):
        release(CROWDED, ledger=ledger, **how, **other)
    made = release(CROWDED, ledger=ledger, **how, **LISTS)
    assert made.measurements.measured[0].share == Fraction(1, 10)


def test_the_room_for_lists_is_taken_before_they_are_drawn_and_is_enough(tmp_path, monkeypatch):
    taken, real = [], RunFolder.take_room
    monkeypatch.setattr(RunFolder, "take_room", lambda kept, size, *more: (taken.append(size), real(kept, size, *more)))
    made = release(CROWDED, budget=Budget(epsilon=1), unit=one_entity(), keep=tmp_path, intervals="none", **LISTS)
    assert len(made.measurements.on_level(0).values) > 200_000
    assert (tmp_path / "measurements.parquet").stat().st_size <= max(taken)


# -------------------------------------------------------------------- which release it paid for


def test_a_ledger_that_went_away_does_not_keep_a_release_from_being_saved(tmp_path, made, ledger):
    done = made()
    ledger.path.rename(tmp_path / "away.db")
    ledger.anchor_path.rename(tmp_path / "away.db.anchor")
    with pytest.warns(NotRecorded, match="tallytree ledger record") as warned:
        release_id = done.save(tmp_path / "release")
    assert all("Nothing was spent" not in str(each.message) for each in warned)
    assert verify(tmp_path / "release").ok
    away = Ledger(tmp_path / "away.db")
    assert spendings(away)[0].release_id is None
    assert record(tmp_path / "release", away) == (1, release_id)
    assert spendings(away)[0].release_id == release_id


def test_a_release_without_a_kept_folder_is_recorded_with_the_only_reservation_that_fits(tmp_path, made, ledger):
    done = made(keep=None)  # so that the ledger was told nothing of its measurements
    ledger.path.rename(tmp_path / "away.db")
    ledger.anchor_path.rename(tmp_path / "away.db.anchor")
    with pytest.warns(NotRecorded):
        release_id = done.save(tmp_path / "release")
    assert record(tmp_path / "release", Ledger(tmp_path / "away.db")) == (1, release_id)


def test_an_older_ledger_without_the_reservation_warns_and_the_release_is_saved(tmp_path, ledger, made):
    for path in (ledger.path, ledger.anchor_path):
        shutil.copyfile(path, tmp_path / f"old-{path.name}")
    done = made(keep=None)
    for path in (ledger.path, ledger.anchor_path):
        shutil.copyfile(tmp_path / f"old-{path.name}", path)
    with pytest.warns(NotRecorded, match="no reservation 1"):
        done.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok


def test_a_kill_after_the_renaming_still_gets_its_id_into_the_ledger(tmp_path, made, ledger, monkeypatch):
    done = made(keep=None)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", kill)
        with pytest.raises(Killed):
            done.save(tmp_path / "release")
    assert spendings(ledger)[0].release_id is None
    number, release_id = record(tmp_path / "release", ledger)
    assert spendings(ledger)[number - 1].release_id == release_id
    assert verify(tmp_path / "release", id=release_id).ok


def test_a_release_of_something_else_is_not_recorded(tmp_path, made, ledger):
    made().save(tmp_path / "release")
    other = release(PEOPLE, budget=Budget(epsilon=1), unit=one_entity(), intervals="none")
    other.save(tmp_path / "other")
    before = ledger.entries()
    with pytest.raises(BudgetError, match="was made without a ledger"):
        record(tmp_path / "other", ledger)
    with pytest.raises(BudgetError, match="other measurements"):
        record(tmp_path / "other", ledger, 1)
    with pytest.raises(ReleaseError, match="not a release"):
        record(tmp_path, ledger)
    assert ledger.entries() == before


def test_what_the_ledger_knows_measurements_by_survives_files(tmp_path, made):
    done = made()
    done.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    assert again.measurements.mark == done.measurements.mark
    values = again.measurements.measured[0].values
    values[0, 0] += 1
    assert again.measurements.mark != done.measurements.mark
    assert np.array_equal(again.counts, done.counts)


def test_the_ledger_is_found_again_after_the_program_moved(tmp_path, made, ledger, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    done = made(ledger="ledger.db", keep="kept")
    monkeypatch.chdir(tmp_path / "elsewhere")
    release_id = done.save(tmp_path / "release")
    assert spendings(ledger)[0].release_id == release_id
    assert resume(tmp_path / "kept", intervals="none").total == done.total
