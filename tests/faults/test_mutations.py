"""A small count of what `make torture` does thousands of times."""

from tests.faults import mutations


def test_a_forged_field_cell_or_row_is_found_or_listed_as_an_assumption():
    tally = mutations.forgeries(60, seed=1)
    assert tally.broken == 0, tally.examples


def test_damaged_releases_give_an_outcome_and_no_traceback():
    tally = mutations.damages(30, seed=1)
    assert tally.broken == 0, tally.examples


def test_damaged_ledgers_are_refused_or_read_as_they_were():
    tally = mutations.ledgers(30, seed=1)
    assert tally.broken == 0, tally.examples


def test_an_unchanged_release_passes_so_that_what_is_found_is_the_change():
    for name, folder in mutations.originals().items():
        assert mutations.checked(name, folder).faults == (), name
