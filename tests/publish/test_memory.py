"""An estimate that does not fit into memory is refused before anything is spent, in numbers; and can be tried."""

import pytest

from tallytree import Budget, Ledger, ReleaseError, one_entity, release
from tallytree.privacy import Neighbours
from tallytree.publish import memory
from tests.oracles.example import made_up

HOW = {"budget": Budget(epsilon=1), "unit": one_entity()}


def test_what_does_not_fit_is_refused_with_cells_and_gigabytes_and_nothing_is_spent(tmp_path, monkeypatch):
    data = made_up(3, public_totals=False, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    cells = len(data.hierarchy) * data.max_size
    monkeypatch.setattr(memory, "available", lambda: cells * memory.ESTIMATE)
    with pytest.raises(ReleaseError, match=rf"there are {cells} cells .* GB are free\. Nothing was spent"):
        release(data, **HOW, ledger=ledger, keep=tmp_path / "kept")
    assert not ledger.account("people").spendings
    assert not (tmp_path / "kept").exists()
    release(data, **HOW, ledger=ledger, intervals="none")
    monkeypatch.setenv(memory.OVERRIDE, "1")
    release(data, **HOW)


def test_a_system_that_does_not_say_how_much_is_free_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: None)
    release(made_up(3, public_totals=False), **HOW, intervals="none")


def test_memory_is_what_the_machine_or_its_container_has_left(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert memory._in_machine(tmp_path / "meminfo") == 7 * 1024
    assert memory._in_machine(tmp_path / "nothing") is None
    assert memory._in_group(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 100\nfile_mapped 20\n")
    assert memory._in_group(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._in_group(tmp_path) is None
    assert memory.available() > 1_000_000
