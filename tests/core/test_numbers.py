from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Budget, BudgetError
from tallytree.core.numbers import exact_number, short

ABSURD = ["1e999999999", "1E-999999999", "1e9_999_999", Decimal("1e999999999"), 10**5000, "9" * 5000, "1/0", "nan"]


@pytest.mark.parametrize("value", ABSURD, ids=range(len(ABSURD)))
def test_absurd_numbers_are_refused_unread(value):
    with pytest.raises(ValueError, match="number"):
        exact_number(value)
    with pytest.raises(BudgetError):
        Budget(epsilon=value)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None, True, [], b"1", "", "one"])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="number"):
        exact_number(value)


@given(st.fractions())
def test_exact_texts_come_back_exactly(value):
    assert exact_number(str(value)) == exact_number(value) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_the_decimal_that_is_written(value):
    assert exact_number(value) == Fraction(repr(value))


def test_messages_quote_only_the_beginning():
    with pytest.raises(BudgetError) as refused:
        Budget(epsilon="9" * 900)
    assert len(str(refused.value)) < 200
    assert short(10**5000) == "an integer of more than 300 digits"
