"""Exact numbers from untrusted text, within bounds: no text makes the reader compute for hours.

`Fraction("1e999999999")` is a number of a billion digits. No valid input contains such a number, so it is refused
before it is computed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from tallytree.core.names import may_hold_secret

LONGEST = 1000  # characters of a number; the exact amounts that tallytree writes have fewer than 200
LARGEST_EXPONENT = 400  # beyond the range of a float

_EXPONENT = re.compile(r"[eE]\s*([+-]?[\d_]+)")


def exact_number(value: Fraction | Decimal | int | float | str) -> Fraction:
    """Return the exact decimal (or fraction) of a text or number, or raise ValueError.

    >>> exact_number(0.1), exact_number("1/3"), exact_number("2.5e-1")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 4))
    >>> exact_number("1e999999999")
    Traceback (most recent call last):
    ...
    ValueError: a number with the exponent 999999999 is out of all bounds
    """
    if isinstance(value, bool) or not isinstance(value, Fraction | Decimal | int | float | str):
        raise ValueError(f"expected a number or a decimal text, not {type(value).__name__}")
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        if value.bit_length() > 4 * LONGEST:
            raise ValueError("a number of more than a thousand digits is out of all bounds")
        return Fraction(value)
    text = repr(value) if isinstance(value, float) else str(value)
    if len(text) > LONGEST:
        raise ValueError(f"a number of {len(text):,} characters is out of all bounds")
    if found := _EXPONENT.search(text):
        exponent = found[1].replace("_", "")
        if abs(int(exponent)) > LARGEST_EXPONENT:
            raise ValueError(f"a number with the exponent {exponent} is out of all bounds")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a finite number such as 1, 0.1, '0.1' or '1/3'") from None


def short(value: object, most: int = 60) -> str:
    """Return a value as Python writes it, truncated if it is long, so that a message can quote it.

    >>> short("1/0"), len(short("9" * 5000))
    ("'1/0'", 60)
    """
    if isinstance(value, int) and value.bit_length() > 1000:
        return "an integer of more than 300 digits"
    if may_hold_secret(value):
        return "a text that is not repeated here, because it may contain a secret"
    told = repr(value)
    return told if len(told) <= most else f"{told[: most - 2]} …"
