"""What an interrupted `tallytree synthesize` leaves behind: each state says what was spent and has a way forward."""

import errno
import json
import os
import shlex
import shutil
from fractions import Fraction

import pytest

from tallytree import Budget, BudgetError, Ledger, ReleaseError
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.disk import JsonLines
from tallytree.privacy.journal import Journal
from tallytree.publish import folder as publishing
from tallytree.publish.folder import claimed
from tallytree.publish.microdata import synthesis as files
from tallytree.publish.run_folder import RunFolder
from tests.command.test_synthesize import LEDGERED, folder  # noqa: F401

RUN = ("synthesize", "synth.toml", "--out", "mine")


class Cut(BaseException):
    """A kill, for what runs in this process: nothing after it is done."""


def cut(*_, **__):
    raise Cut


@pytest.fixture
def ledgered(folder, typed):  # noqa: F811
    (folder / "synth.toml").write_text(LEDGERED)
    typed("ledger", "open", "synth.toml", "--rho", "0.6")
    return folder


@pytest.fixture
def stopped(typed, monkeypatch):
    """Run the command with a step that fails."""

    def stopped(where, name, does=cut, *, words=RUN, code=None):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, does)
            if code is not None:
                return typed(*words, code=code)
            with pytest.raises(Cut):
                typed(*words)
        return ""

    return stopped


def spendings(folder):  # noqa: F811
    return Ledger(folder / "ledger.db").account("homes-2020").spendings


def pasted(text):
    """The words of the command that a message says to go on with."""
    words = shlex.split(text.split("Go on with: ")[1])
    return words[1 : words.index("--resume") + 1]


def test_a_resume_whose_folder_was_removed_meanwhile_does_not_begin_anew(ledgered, typed, stopped):
    stopped(Journal, "record")
    read = SynthesisSpec.read

    def removed(self, progress):
        shutil.rmtree(ledgered / "mine.partial")
        return read(self, progress)

    text = stopped(SynthesisSpec, "read", removed, words=(*RUN, "--resume"), code=2)
    assert "nothing is begun anew" in text
    assert len(spendings(ledgered)) == 1
    assert not (ledgered / "mine").exists()


def test_a_run_that_was_stopped_before_its_first_line_is_begun_again_without_ado(ledgered, typed, stopped):
    stopped(Journal, "begin")
    assert not spendings(ledgered)
    (ledgered / "mine.partial").mkdir(exist_ok=True)
    (ledgered / "mine.partial" / "journal.jsonl").touch()
    text = typed(*RUN, "--resume", code=2)
    assert "Nothing was spent" in text
    assert "leave out --resume" in text
    typed(*RUN)
    typed("verify", "mine")
    assert len(spendings(ledgered)) == 1
    assert not (ledgered / "mine.partial").exists()


@pytest.mark.parametrize("before", [True, False])
def test_a_run_stopped_while_reserving_says_so_and_is_charged_once(ledgered, typed, stopped, before):
    reserve = Ledger.reserve

    def reserved(*arguments, **options):
        if not before:
            reserve(*arguments, **options)
        raise Cut

    stopped(Ledger, "reserve", reserved)
    if before:  # nothing is lost by beginning anew
        typed(*RUN)
    else:
        text = typed(*RUN, code=2)
        assert "ρ = 0.5 of 'homes-2020' in" in text
        assert "is spent. No measurement was published" in text
        typed(*pasted(text))
    typed("verify", "mine")
    assert len(spendings(ledgered)) == 1


def test_a_run_that_lost_the_race_for_the_last_of_the_budget_leaves_nothing(ledgered, typed, monkeypatch):
    typed(*RUN)
    monkeypatch.setattr(Ledger, "check", lambda *_, **__: None)
    text = typed("synthesize", "synth.toml", "--out", "second", code=3)
    assert "Nothing was spent" in text
    assert "--resume" not in text
    assert not list(ledgered.glob("second*"))


def test_a_run_that_was_stopped_after_the_renaming_is_finished_and_its_id_recorded(ledgered, typed, stopped):
    stopped(Ledger, "record")
    saved = publishing.digest(ledgered / "mine" / "manifest.json")
    assert spendings(ledgered)[0].release_id is None
    assert "Go on with" in typed(*RUN, code=2)
    assert saved in typed(*RUN, "--resume")
    assert [each.release_id for each in spendings(ledgered)] == [saved]
    assert publishing.digest(ledgered / "mine" / "manifest.json") == saved
    assert not (ledgered / "mine.partial").exists()


def test_the_ledger_can_be_told_by_name_of_the_directory_what_it_paid_for(ledgered, typed, stopped):
    stopped(Ledger, "record")
    saved = publishing.digest(ledgered / "mine" / "manifest.json")
    (ledgered / "mine.partial").rename(ledgered / "hidden")
    assert "reservation 1 paid" in typed("ledger", "record", "mine", "--ledger", "ledger.db")
    assert [each.release_id for each in spendings(ledgered)] == [saved]
    (ledgered / "hidden").rename(ledgered / "mine.partial")
    typed(*RUN, "--resume")
    assert not (ledgered / "mine.partial").exists()
    typed("ledger", "record", "mine", "--ledger", "ledger.db")
    assert [each.release_id for each in spendings(ledgered)] == [saved]


def test_where_several_reservations_fit_they_are_listed_and_one_has_to_be_named(folder, typed, stopped):  # noqa: F811
    (folder / "synth.toml").write_text(LEDGERED)
    typed("ledger", "open", "synth.toml", "--rho", "2")
    for out in ("mine", "second"):
        stopped(Ledger, "record", words=("synthesize", "synth.toml", "--out", out))
        (folder / f"{out}.partial").rename(folder / f"hidden-{out}")
    told = typed("ledger", "record", "mine", "--ledger", "ledger.db", code=2)
    for number in (1, 2):
        assert f"reservation {number} of 'homes-2020'" in told
    assert "--receipt" in told
    typed("ledger", "record", "mine", "--ledger", "ledger.db", "--receipt", "1")
    assert "reservation 2 paid" in typed("ledger", "record", "second", "--ledger", "ledger.db")
    saved = [publishing.digest(folder / out / "manifest.json") for out in ("mine", "second")]
    assert [each.release_id for each in spendings(folder)] == saved


def test_a_ledger_that_fails_at_a_round_does_not_claim_that_nothing_was_spent(ledgered, typed, stopped):
    def fails(*_, **__):
        raise BudgetError("the ledger cannot be used: disk I/O error. Nothing was changed.")

    text = stopped(Ledger, "begin_round", fails, code=2)
    assert "Nothing was spent" not in text
    assert "ρ = 0.5 of 'homes-2020' in" in text
    typed(*pasted(text))
    typed("verify", "mine")
    assert len(spendings(ledgered)) == 1


def test_a_run_that_was_stopped_before_the_renaming_is_written_again(ledgered, typed, stopped):
    stopped(publishing, "put_in_place")
    assert not (ledgered / "mine").exists()
    typed(*RUN, "--resume")
    saved = publishing.digest(ledgered / "mine" / "manifest.json")
    assert [each.release_id for each in spendings(ledgered)] == [saved]


def test_something_else_at_the_target_is_left_alone_and_the_run_can_go_on(ledgered, typed, stopped):
    stopped(Journal, "record")
    (ledgered / "mine").write_text("a file of the user's own")
    text = typed(*RUN, "--resume", code=2)
    assert "this run did not write it" in text
    assert (ledgered / "mine").read_text() == "a file of the user's own"
    (ledgered / "mine").rename(ledgered / "elsewhere")
    typed(*pasted(text))
    typed("verify", "mine")


def test_what_appears_at_the_target_while_households_are_written_stays(ledgered, typed, stopped):
    real = files.data_package

    def meanwhile(synthesis):
        (ledgered / "mine").mkdir()
        (ledgered / "mine" / "notes.txt").write_text("a file of the user's own")
        return real(synthesis)

    text = stopped(files, "data_package", meanwhile, code=2)
    assert (ledgered / "mine" / "notes.txt").read_text() == "a file of the user's own"
    assert "already exists" in text
    assert "spent" in text
    (ledgered / "mine").rename(ledgered / "elsewhere")
    typed(*pasted(text))
    typed("verify", "mine")
    assert len(spendings(ledgered)) == 1


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_without_room_is_told_before_anything_is_spent(ledgered, typed, stopped):
    text = stopped(JsonLines, "keep_room", full, code=2)
    assert "has no room" in text
    assert "Nothing was spent" in text
    assert not spendings(ledgered)
    assert not list(ledgered.glob("mine*"))


def test_a_disk_that_is_full_at_a_round_stops_before_the_round_is_begun_and_loses_nothing(ledgered, typed, stopped):
    real, asked = JsonLines.keep_room, []

    def full_at_the_fourth(self, size):
        asked.append(size)
        return full() if len(asked) == 4 else real(self, size)

    text = stopped(JsonLines, "keep_room", full_at_the_fourth, code=2)
    assert "is spent. The 2 rounds started so far are stored" in text
    typed(*pasted(text))
    told = json.loads((ledgered / "mine" / "privacy.json").read_text())
    assert not any(row["lost"] for row in told["rounds"])
    assert len(spendings(ledgered)) == 1


@pytest.mark.parametrize("where", [(files, "write_json"), (publishing, "sync"), (files, "write_accuracy")])
def test_a_disk_that_is_full_while_households_are_written_says_how_to_go_on(ledgered, typed, stopped, where):
    text = stopped(*where, full, code=2)
    assert "No space left on device" in text
    assert "is spent. The" in text
    assert "defect" not in text
    assert not (ledgered / "mine").exists()
    typed(*pasted(text))
    typed("verify", "mine")
    assert len(spendings(ledgered)) == 1


def test_a_second_run_for_the_same_directory_is_refused_before_it_pays(ledgered, typed):
    descriptor, ready = os.pipe()
    stop, go = os.pipe()
    child = os.fork()
    if child == 0:
        with claimed(ledgered / "mine"):
            os.write(ready, b".")
            os.read(stop, 1)
        os._exit(0)
    os.read(descriptor, 1)
    try:
        for more in ((), ("--resume",)):
            assert "another run is writing" in typed(*RUN, *more, code=2)
    finally:
        os.write(go, b".")
        os.waitpid(child, 0)
    assert not spendings(ledgered)
    typed(*RUN)


def test_a_folder_that_holds_something_else_is_left_alone(ledgered, typed):
    (ledgered / "mine.partial").mkdir()
    (ledgered / "mine.partial" / "measurements.parquet").write_text("of a release")
    for more in ((), ("--resume",)):
        assert "does not hold an interrupted run" in typed(*RUN, *more, code=2)
    assert (ledgered / "mine.partial" / "measurements.parquet").read_text() == "of a release"
    assert not spendings(ledgered)


def test_what_a_user_put_into_the_folder_of_a_run_is_not_removed_with_it(ledgered, typed, stopped):
    stopped(Journal, "record")
    (ledgered / "mine.partial" / "notes.txt").write_text("a file of the user's own")
    typed(*RUN, "--resume")
    assert [path.name for path in (ledgered / "mine.partial").iterdir()] == ["notes.txt"]


def test_the_command_to_go_on_can_be_pasted_whatever_the_names_are(ledgered, typed, stopped):
    words = ("synthesize", "synth.toml", "--out", "my homes; rm", "--ledger", "ledger.db", "--same-data-other-name")
    text = stopped(files, "write_json", full, words=words, code=2)
    assert pasted(text) == [*words, "--resume"]
    typed(*pasted(text))
    typed("verify", "my homes; rm")


def test_a_command_to_paste_is_not_broken_into_lines(capsys):
    from tallytree.command.main import _complain

    command = f"  tallytree synthesize {'long' * 40} --resume"
    _complain(f"error: {'many words ' * 20}\n{command}")
    lines = capsys.readouterr().err.splitlines()
    assert command in lines
    assert len(lines) > 2


def test_a_journal_that_cannot_be_opened_after_an_error_is_gone_on_from_too(ledgered, typed, stopped, monkeypatch):
    def fails(*_, **__):
        monkeypatch.setattr("tallytree.core.disk.JsonLines.__init__", full)
        full()

    text = stopped(Journal, "record", fails, code=2)
    assert "is spent. The round started so far is stored" in text
    monkeypatch.undo()
    monkeypatch.chdir(ledgered)
    typed(*pasted(text))
    assert len(spendings(ledgered)) == 1


def test_every_state_of_a_folder_has_words(tmp_path):
    assert RunFolder(tmp_path / "absent").state().stage == "nothing"
    (tmp_path / "file").touch()
    assert RunFolder(tmp_path / "file").state().stage == "other"
    run = RunFolder(tmp_path / "run")
    with Journal(tmp_path / "run") as journal:
        journal.begin({"name": None, "budget": Budget(rho="1/2").to_json(), "ledger": None, "token": "t"})
        with pytest.raises(ReleaseError, match="in use by another run"):
            Journal(tmp_path / "run")
        assert (run.state().stage, run.state().spent) == ("begun", False)
        assert "Nothing was spent" in run.state().in_words()
        journal.reserve({"kind": "measure"}, Fraction(1, 8))
        assert run.state().in_words().startswith("ρ = 0.125 is spent. The round started so far is stored")
        journal.finish()
    assert (run.state().stage, run.state().spent) == ("finished", False)
    assert "complete" in run.state().in_words()
