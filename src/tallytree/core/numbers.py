"""Exact numbers from untrusted text, within bounds: no text makes the reader compute for hours.

`Fraction("1e999999999")` is a number of a billion digits. No valid input contains such a number, so it is refused
before it is computed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

from tallytree.core.names import may_hold_secret

LONGEST = 1000  # characters of a number; the exact amounts that tallytree writes have fewer than 200
LARGEST_EXPONENT = 400  # beyond the range of a float
EXACT = (Real, Decimal, str)  # what an exact number is given as; Python's numbers, NumPy's and fractions are Real

_EXPONENT = re.compile(r"[eE]\s*([+-]?[\d_]+)")


def exact_number(value: Any) -> Fraction:
    """Return the exact decimal (or fraction) of a text or number, or raise ValueError.

    >>> exact_number(0.1), exact_number("1/3"), exact_number("2.5e-1")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 4))
    >>> exact_number("1e999999999")
    Traceback (most recent call last):
    ...
    ValueError: a number with the exponent 999999999 is out of all bounds
    """
    if isinstance(value, bool) or not isinstance(value, EXACT):
        raise ValueError(f"expected a number or a decimal text, not {type(value).__name__}")
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Integral):
        if int(value).bit_length() > 4 * LONGEST:
            raise ValueError("a number of more than a thousand digits is out of all bounds")
        return Fraction(int(value))
    text = str(value)
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


def as_plain(value: Any) -> Any:
    """Return a number of NumPy as Python's own, with the digits that it shows; anything else as it is.

    >>> import numpy as np
    >>> as_plain(np.int64(3)), as_plain(np.float32(0.95)), as_plain("3")
    (3, 0.95, '3')
    """
    if not isinstance(value, Real) or not hasattr(value, "dtype"):
        return value
    return int(value) if isinstance(value, Integral) else float(str(value))


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
