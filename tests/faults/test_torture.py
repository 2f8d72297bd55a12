from tests.faults.tally import Tally
from tests.faults.torture import HARNESSES, table


def test_the_table_has_a_row_for_each_harness_and_a_column_for_each_promise():
    lines = table([Tally("kills", 1_000), Tally("faults", 12, lost=3)])
    assert [line.split("|")[1].strip() for line in lines] == ["harness", "-" * 9, "kills", "faults"]
    assert lines[0].split("|")[2].strip() == "runs"
    assert lines[2].split("|")[2].strip() == "1,000"
    assert lines[3].split("|")[3].strip() == "3"
    assert len({len(line) for line in lines}) == 1


def test_tallies_add_up():
    both = Tally("one", 2, lost=1, examples=("a",)) + Tally("two", 3, lost=1, hung=1, examples=("b",))
    assert both == Tally("one", 5, lost=2, hung=1, examples=("a", "b"))
    assert both.broken == 3


def test_the_large_counts_are_those_that_the_manual_states():
    counts = {harness.name: harness.large for harness in HARNESSES}
    assert counts["kills"] == counts["faults"] == counts["dead disks"] == counts["killed clean-ups"] == 1_000
    assert counts["lack of memory"] == 500
    assert counts["mutations"] == 5_000
    assert counts["fuzzed inputs"] == 100_000
