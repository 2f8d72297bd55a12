import json
import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, BudgetError, Ledger, SpecError, one_entity, one_group
from tallytree.privacy import Neighbours
from tallytree.privacy.chain import AnchorBehind, Chain, ReadableLedger
from tallytree.privacy.ledger import ChangedInput, Expense, Receipt
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit

PEOPLE = Neighbours(one_entity(), max_size=5, public_totals=False)


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.open("people", Budget(epsilon=1), PEOPLE)
    return book


def test_reservations_add_up_exactly_and_overspending_is_refused(ledger):
    for _ in range(10):
        ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    assert ledger.account("people").left == 0
    with pytest.raises(BudgetError, match="has ε = 0 left of ε = 1; this release would cost ε = 1e-30"):
        ledger.reserve(Expense("people", Budget(epsilon=Fraction(1, 10**30)), PEOPLE))
    assert len(ledger.account("people").spendings) == 10


@settings(max_examples=25)
@given(costs=st.lists(st.fractions(Fraction(1, 50), Fraction(9, 10), max_denominator=50), min_size=1, max_size=8))
def test_a_cost_is_taken_if_and_only_if_it_fits_into_what_is_left(tmp_path_factory, costs):
    book = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    book.open("people", Budget(epsilon=1), PEOPLE)
    left = Fraction(1)
    for cost in costs:
        if cost <= left:
            book.reserve(Expense("people", Budget(epsilon=cost), PEOPLE))
            left -= cost
        else:
            with pytest.raises(BudgetError, match="Nothing was changed"):
                book.reserve(Expense("people", Budget(epsilon=cost), PEOPLE))
        assert book.account("people").left == left


def test_a_crash_after_reserving_leaves_it_spent(ledger):
    ledger.reserve(Expense("people", Budget(epsilon="0.75"), PEOPLE))
    again = Ledger(ledger.path).account("people")
    assert again.spent == Fraction(3, 4)
    assert again.spendings[0].release_id is None


def _race(path, start, results):
    start.wait()
    won = 0
    for _ in range(10):
        try:
            Ledger(path).reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
            won += 1
        except BudgetError:
            pass
    results.put(won)


def test_racing_processes_cannot_overspend(ledger):
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    racers = [context.Process(target=_race, args=(ledger.path, start, results)) for _ in range(4)]
    for racer in racers:
        racer.start()
    start.set()
    won = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    assert sum(won) == 10
    assert ledger.account("people").left == 0


def test_the_relation_and_the_name_are_fixed(ledger):
    for other in (
        Neighbours(one_group(), 5, False),
        Neighbours(one_entity(), 6, False),
        Neighbours(one_entity(), 5, True),
        Neighbours(one_entity(), 5, False, quantity_bound=2),
        Neighbours(one_entity(), 5, False, rows_per_entity=2),
    ):
        with pytest.raises(BudgetError, match="another neighbour relation"):
            ledger.reserve(Expense("people", Budget(epsilon="0.1"), other))
    with pytest.raises(BudgetError, match="already"):
        ledger.open("people", Budget(epsilon=9), PEOPLE)
    with pytest.raises(BudgetError, match="no data set 'persons'"):
        ledger.reserve(Expense("persons", Budget(epsilon="0.1"), PEOPLE))
    with pytest.raises(BudgetError, match="needs the data set's name"):
        ledger.reserve(Expense(None, Budget(epsilon="0.1"), PEOPLE))
    assert ledger.account("people").spent == 0


def test_pure_epsilon_may_be_charged_to_a_rho_account_and_never_the_reverse(ledger):
    ledger.open("in rho", Budget(rho=1), PEOPLE)
    ledger.reserve(Expense("in rho", Budget(epsilon=1), PEOPLE))
    ledger.reserve(Expense("in rho", Budget(rho="1/4", delta="1e-9"), PEOPLE))
    assert ledger.account("in rho").left == Fraction(1, 4)
    with pytest.raises(BudgetError, match="no finite pure epsilon"):
        ledger.reserve(Expense("people", Budget(rho="0.01"), PEOPLE))


def test_a_changed_input_is_refused_unless_the_user_says_that_it_is_the_same_data(ledger):
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="one"))
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="one"))
    for use in (ledger.check, ledger.reserve):
        with pytest.raises(ChangedInput, match=r"Nothing was spent.*--changed-files"):
            use(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="two"))
    assert ledger.account("people").spent == Fraction(2, 10)
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="two", changed_files=True))
    for known in ("one", "two", None):
        ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint=known))
    assert ledger.account("people").spent == Fraction(6, 10)


def test_the_file_is_made_for_its_owner_and_others_are_warned_of_and_never_locked_out(ledger):
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(anchor_of(ledger).stat().st_mode) == 0o600
    os.chmod(ledger.path, 0o640)
    ledger.account("people")
    with pytest.warns(ReadableLedger, match=r"mode 640.*chmod 600"):
        ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o640


def test_a_release_id_is_kept_with_its_reservation(ledger):
    first = ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    first.record("abc")
    assert [spending.release_id for spending in ledger.account("people").spendings] == ["abc", None]


def test_a_missing_ledger_is_a_clear_error(tmp_path):
    with pytest.raises(BudgetError, match="no ledger at"):
        Ledger(tmp_path / "none.db").accounts()
    assert not list(tmp_path.iterdir())


def state(path):
    return path.stat().st_mode, path.stat().st_mtime_ns, None if path.is_dir() else path.read_bytes()


@pytest.mark.filterwarnings("ignore::tallytree.privacy.chain.ReadableLedger")
def test_what_is_no_ledger_is_refused_and_left_as_it_was(tmp_path):
    folder, table, empty, other = (tmp_path / name for name in ("folder", "table.csv", "empty", "other.db"))
    folder.mkdir(mode=0o755)
    table.write_text("home,county\n1,2\n")
    empty.touch()
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE mine (a)")
    os.mkfifo(tmp_path / "fifo")
    for path in (folder, table, empty, other, tmp_path / "fifo"):
        path.chmod(0o755 if path == folder else 0o644)
        before = None if path.name == "fifo" else state(path)
        for use in (
            lambda path=path: Ledger(path).accounts(),
            lambda path=path: Ledger(path).open("people", Budget(epsilon=1), PEOPLE),
            lambda path=path: Ledger(path).reserve(Expense("people", Budget(epsilon=1), PEOPLE)),
        ):
            with pytest.raises(BudgetError, match="no ledger"):
                use()
        assert before is None or state(path) == before
    assert len(list(tmp_path.iterdir())) == 5


def test_looking_changes_nothing(ledger):
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    ledger.path.chmod(0o444)
    before = state(ledger.path), state(anchor_of(ledger)), sorted(ledger.path.parent.iterdir())
    ledger.accounts()
    ledger.links()
    ledger.check(Expense("people", Budget(epsilon="0.1"), PEOPLE))
    assert (state(ledger.path), state(anchor_of(ledger)), sorted(ledger.path.parent.iterdir())) == before


# -------------------------------------------------------------------- the chain and its anchor


def anchor_of(ledger):
    return ledger.path.with_name(f"{ledger.path.name}.anchor")


def test_an_interrupted_transaction_leaves_nothing_behind(ledger):
    def interrupted():
        with ledger._chain.writing() as writing:
            writing.append("recorded", {"receipt": 1, "release_id": "x"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(ledger.entries()) == 1
    assert ledger.account("people").total == 1


def test_a_write_that_was_cut_off_is_undone_in_a_copy_when_looking_and_for_good_when_writing(ledger, tmp_path):
    ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    shutil.copy(ledger.path, tmp_path / "before.db")
    code = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("PRAGMA cache_spill = 1")
database.execute("BEGIN IMMEDIATE")
for number in range(10, 2000):
    database.execute("INSERT INTO entry VALUES (?, 'x', ?, 'x', 'x')", (number, "x" * 500))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(ledger.path)], check=False)
    journal = Path(f"{ledger.path}-journal")
    assert journal.stat().st_size > 0
    before = state(ledger.path), state(journal)
    assert ledger.account("people").spent == Fraction(1, 4)
    assert (state(ledger.path), state(journal)) == before
    ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    assert not journal.exists()
    assert ledger.account("people").spent == Fraction(1, 2)


def test_entries_are_not_changed_nor_removed_by_sql_and_an_edit_behind_its_back_is_noticed(ledger):
    ledger.reserve(Expense("people", Budget(epsilon="0.5"), PEOPLE))
    whole = ledger.path.read_bytes()
    with closing(sqlite3.connect(ledger.path)) as database:
        for change in ("UPDATE entry SET body = '{}'", "DELETE FROM entry WHERE number = 2"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                database.execute(change)
    for number in (1, 2):
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as database:
            database.execute("DROP TRIGGER no_change")
            database.execute("UPDATE entry SET body = replace(body, '1', '2') WHERE number = ?", (number,))
        with pytest.raises(BudgetError, match=f"entry {number} does not follow"):
            ledger.accounts()
        with pytest.raises(BudgetError, match="Nothing was changed"):
            ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))
        ledger.path.write_bytes(whole)
    assert ledger.account("people").spent == Fraction(1, 2)


def test_an_older_copy_that_was_put_back_is_noticed(ledger):
    older = ledger.path.read_bytes()
    ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))
    newest, anchor = ledger.path.read_bytes(), anchor_of(ledger).read_bytes()
    ledger.path.write_bytes(older)
    for use in (ledger.accounts, lambda: ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))):
        with pytest.raises(BudgetError, match=r"it has 1 entries, and 2 were written.*Restore the newest copy"):
            use()
    ledger.path.unlink()
    with pytest.raises(BudgetError, match="says that there was one: restore it"):
        ledger.open("people", Budget(epsilon=9), PEOPLE)
    ledger.path.write_bytes(newest)
    assert ledger.account("people").left == 0
    assert anchor_of(ledger).read_bytes() == anchor


def test_a_kill_between_the_ledger_and_its_anchor_is_no_damage(ledger):
    behind = anchor_of(ledger).read_bytes()
    ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    anchor_of(ledger).write_bytes(behind)
    assert ledger.account("people").spent == Fraction(1, 4)
    ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    assert json.loads(anchor_of(ledger).read_text())["number"] == 3


def test_an_anchor_that_cannot_be_written_does_not_lose_what_was_reserved(ledger, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ledger._chain, "_write_anchor", full)
        with pytest.warns(AnchorBehind, match="was written, but not its anchor"):
            receipt = ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    assert [each.number for each in ledger.account("people").spendings] == [receipt.number]


def test_a_ledger_without_its_anchor_is_accepted_by_its_owner_alone(ledger):
    ledger.reserve(Expense("people", Budget(epsilon="0.25"), PEOPLE))
    last = ledger.entries()[-1].digest
    with pytest.raises(BudgetError, match="is there already"):
        ledger.anchor(last)
    anchor_of(ledger).unlink()
    for use in (ledger.accounts, lambda: ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE))):
        with pytest.raises(BudgetError, match=r"has no anchor beside it.*tallytree ledger anchor"):
            use()
    for wrong in ("", last[:7], "0" * 16):
        with pytest.raises(BudgetError, match="nothing was changed"):
            ledger.anchor(wrong)
    assert not anchor_of(ledger).exists()
    assert ledger.anchor(last[:8]).number == 2
    assert ledger.account("people").spent == Fraction(1, 4)


def test_an_anchor_of_another_ledger_is_refused(ledger, tmp_path):
    other = Ledger(tmp_path / "other.db")
    other.open("homes", Budget(epsilon=1), PEOPLE)
    anchor_of(ledger).write_bytes(anchor_of(other).read_bytes())
    with pytest.raises(BudgetError, match="contradict each other at entry 1"):
        ledger.accounts()
    for damaged in (b"", b"{}", b"[" * 100_000, b'{"number": "x", "digest": 1}', b"\xff"):
        anchor_of(ledger).write_bytes(damaged)
        with pytest.raises(BudgetError, match="is damaged"):
            ledger.accounts()


def test_no_flipped_bit_gives_more_budget_or_a_raw_error(ledger, tmp_path):
    ledger.open("homes", Budget(rho=1, delta="1e-9"), PEOPLE)
    ledger.reserve(Expense("people", Budget(epsilon="0.5"), PEOPLE)).record("an id")
    ledger.reserve(Expense("homes", Budget(rho="1/3"), PEOPLE, fingerprint="f" * 64))
    true, refused = ledger.accounts(), 0
    chance = np.random.default_rng(20)
    for path in (ledger.path, anchor_of(ledger)):
        whole = path.read_bytes()
        bits = range(8 * len(whole)) if len(whole) < 200 else chance.choice(8 * len(whole), 1500, replace=False)
        for bit in map(int, bits):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            try:
                assert ledger.accounts() == true, bit
            except BudgetError:
                refused += 1
        path.write_bytes(whole)
    assert refused > 300
    assert ledger.accounts() == true


def test_a_ledger_cut_off_anywhere_is_refused(ledger):
    for _ in range(30):
        ledger.reserve(Expense("people", Budget(epsilon="0.01"), PEOPLE, fingerprint="f" * 64))
    whole = ledger.path.read_bytes()
    for length in [0, 1, 99, 100, *range(512, len(whole), 512)]:
        ledger.path.write_bytes(whole[:length])
        with pytest.raises(BudgetError):
            ledger.accounts()


def test_a_chain_of_thousands_of_entries_is_followed_to_its_end(ledger):
    receipt = ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))
    with ledger._chain.writing() as writing:
        for number in range(1, 2001):
            writing.append("round", {"receipt": receipt.number, "round": number, "cost": "1/9999", "mark": "0" * 32})
    assert len(ledger.account("people").spendings[0].rounds) == 2000


# -------------------------------------------------------------------- tokens, rounds, names, links


def test_a_token_gives_the_same_receipt_and_costs_nothing_again(ledger):
    first = ledger.reserve(Expense("people", Budget(epsilon="0.75"), PEOPLE), "mine")
    assert ledger.reserve(Expense("people", Budget(epsilon="0.75"), PEOPLE), "mine") == first
    assert ledger.account("people").spent == Fraction(3, 4)
    with pytest.raises(BudgetError, match="token was used for another reservation"):
        ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE), "mine")


def test_each_round_begins_once_and_all_of_them_fit_into_the_reservation(ledger):
    ledger.open("homes", Budget(rho=1), PEOPLE)
    receipt = ledger.reserve(Expense("homes", Budget(rho="1/2"), PEOPLE))
    ledger.begin_round(receipt, number=1, cost=Fraction(1, 4), mark="a")
    for wrong in (0, 1, 3):
        with pytest.raises(BudgetError, match=f"round {wrong} was drawn by another run"):
            ledger.begin_round(receipt, number=wrong, cost=Fraction(1, 8), mark="b")
    with pytest.raises(BudgetError, match="more than was reserved"):
        ledger.begin_round(receipt, number=2, cost=Fraction(1, 3), mark="b")
    ledger.begin_round(receipt, number=2, cost=Fraction(1, 4), mark="b")
    assert [each.mark for each in ledger.account("homes").spendings[0].rounds] == ["a", "b"]
    with pytest.raises(BudgetError, match="no reservation 7"):
        ledger.begin_round(Receipt(str(ledger.path), 7), number=1, cost=Fraction(1), mark="a")


def test_the_same_files_under_another_name_are_refused_unless_that_is_meant(ledger):
    ledger.open("again", Budget(epsilon=1), PEOPLE)
    ledger.reserve(Expense("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="one"))
    for use in (ledger.check, ledger.reserve):
        with pytest.raises(BudgetError, match=r"charged to 'people' before.*--same-data-other-name"):
            use(Expense("again", Budget(epsilon="0.1"), PEOPLE, fingerprint="one"))
    assert ledger.account("again").spent == 0
    meant = ledger.reserve(Expense("again", Budget(epsilon="0.1"), PEOPLE, fingerprint="one", same_data=True))
    assert meant.same_data_as == ("people",)
    other = ledger.reserve(Expense("again", Budget(epsilon="0.1"), PEOPLE, fingerprint="two", changed_files=True))
    assert other.same_data_as == ()


def test_linked_accounts_share_one_total_in_rho(ledger):
    homes = HouseholdNeighbours(PrivacyUnit("one_group"), 5)
    ledger.open("homes", Budget(rho=1), homes)
    ledger.reserve(Expense("people", Budget(epsilon="0.2"), PEOPLE, fingerprint="one"))
    link = ledger.link(["people", "homes"], Budget(rho="0.5"))
    assert link.left == Fraction(1, 2) - Fraction(2, 100)
    ledger.reserve(Expense("homes", Budget(rho="0.4"), homes))
    with pytest.raises(BudgetError, match=r"may spend ρ = 0.08 more together, of ρ = 0.5.*cost ρ = 0.1"):
        ledger.reserve(Expense("homes", Budget(rho="0.1"), homes))
    with pytest.raises(BudgetError, match=r"more together.*cost ρ = 0.18"):
        ledger.reserve(Expense("people", Budget(epsilon="0.6"), PEOPLE))
    ledger.reserve(Expense("people", Budget(epsilon="0.4"), PEOPLE))  # costs 0.08 in ρ
    assert [each.left for each in ledger.links()] == [0]
    assert ledger.account("people").left == Fraction(4, 10)


def test_links_are_set_once_between_accounts_that_are_there(ledger):
    ledger.open("more", Budget(epsilon=1), PEOPLE)
    ledger.open("rho", Budget(rho=1), PEOPLE)
    ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE, fingerprint="one"))
    for names, budget, message in (
        (["people", "people"], Budget(rho=1), "at least two"),
        (["people", "nobody"], Budget(rho=1), "no data set 'nobody'"),
        (["people", "rho"], Budget(epsilon=1), "in rho cannot be linked"),
        (["people", "more"], Budget(epsilon="0.5"), "spent ε = 1 together"),
    ):
        with pytest.raises(BudgetError, match=message):
            ledger.link(names, budget)
    ledger.link(["people", "more"], Budget(epsilon="1.5"))
    with pytest.raises(BudgetError, match="linked already"):
        ledger.link(["more", "people"], Budget(epsilon=9))
    ledger.reserve(
        Expense("more", Budget(epsilon="0.5"), PEOPLE, fingerprint="one")
    )  # the same files: the link covers it
    with pytest.raises(BudgetError, match="more together"):
        ledger.reserve(Expense("more", Budget(epsilon="0.1"), PEOPLE))


# -------------------------------------------------------------------- what a system may refuse


class Failing:
    """A connection whose commit reports an error: before it counts, or after."""

    def __init__(self, database, *, counts):
        self.database, self.counts, self.armed = database, counts, True

    def __getattr__(self, name):
        return getattr(self.database, name)

    def execute(self, statement, *given):
        if statement == "COMMIT" and self.armed:
            self.armed = False
            if self.counts:
                self.database.execute(statement)
            raise sqlite3.OperationalError("disk I/O error")
        return self.database.execute(statement, *given)


@pytest.mark.parametrize("counts", [True, False])
def test_an_error_of_the_commit_is_told_from_what_is_in_the_file(ledger, monkeypatch, counts):
    connect = Chain._connect
    with monkeypatch.context() as patch:
        patch.setattr(Chain, "_connect", lambda chain, uri: Failing(connect(chain, uri), counts=counts))
        if counts:
            assert ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE)).number == 1
        else:
            with pytest.raises(BudgetError, match=r"disk I/O error\. Nothing was changed"):
                ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))
    assert len(ledger.account("people").spendings) == counts


def test_a_commit_that_failed_in_a_file_that_cannot_be_read_says_that_it_is_not_known(ledger, monkeypatch):
    connect = Chain._connect
    with monkeypatch.context() as patch:
        patch.setattr(Chain, "_connect", lambda chain, uri: Failing(connect(chain, uri), counts=True))
        entries, calls = Chain._entries, []

        def unreadable(chain, database):
            calls.append(1)
            if len(calls) > 1:
                raise OSError(5, "input/output error")
            return entries(chain, database)

        patch.setattr(Chain, "_entries", unreadable)
        with pytest.raises(BudgetError, match="whether this was spent is not known"):
            ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))


def test_an_anchor_that_a_killed_process_was_writing_is_cleared(ledger):
    left = ledger.anchor_path.with_name(f"{ledger.anchor_path.name}.12345")
    left.write_text("{")
    kept = ledger.anchor_path.with_name(f"{ledger.anchor_path.name}.backup")
    kept.write_text("mine")
    ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))
    assert not left.exists()
    assert kept.exists()


def test_a_ledger_that_is_a_folder_or_in_a_file_or_unreadable_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "ledger.db", tmp_path / ("x" * 300)):
        for call in (
            lambda ledger: ledger.open("people", Budget(epsilon=1), PEOPLE),
            lambda ledger: ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE)),
            lambda ledger: ledger.accounts(),
        ):
            with pytest.raises((BudgetError, SpecError)):
                call(Ledger(path))


def test_a_ledger_whose_path_goes_away_says_that_nothing_was_spent_where_it_was(ledger, tmp_path):
    ledger.path.parent.rename(tmp_path.with_name(f"{tmp_path.name}-away"))
    with pytest.raises(BudgetError, match="there is no ledger at"):
        ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))


def test_a_ledger_that_another_program_has_is_given_up_after_a_time(ledger, monkeypatch):
    monkeypatch.setattr("tallytree.privacy.chain.WAIT", 0.05)
    with sqlite3.connect(ledger.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BudgetError, match=r"in use by another program for 0\.05 seconds; nothing was changed"):
            ledger.reserve(Expense("people", Budget(epsilon=1), PEOPLE))
        other.execute("ROLLBACK")
    other.close()
    assert not ledger.account("people").spendings
