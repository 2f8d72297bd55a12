"""`Answer`: a value from released counts with its error bars, and its text for people and programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

from tallytree.core.display import page, paragraph
from tallytree.core.names import quoted
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import Kind
from tallytree.publish.release.descriptions import AS_TRUNCATED
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.queries import LINEAR_KINDS, SIZE_KINDS, Ends, QueryKind

DIGITS_OF_FLOATS = 12  # further digits are floating-point error


@dataclass(frozen=True)
class Answer:
    """The answer to a query: a value from the released counts with its intervals. Everything in it is public.

    Attributes
    ----------
    question : str
        The query in words.
    kind : str
        The kind of the query.
    released : float or None
        The value from the published table; None if the released denominator is zero.
    unbiased : float or None
        The estimate straight from the measurements: for shares and means a ratio of unbiased estimates. None if there
        is not enough to know it from.
    guaranteed, typical : pair of float or None
        The intervals. The ends of a guaranteed one may be infinite.
    confidence : float
        The level of the intervals.
    notes : tuple of str
        What to know about the answer.
    regions : tuple of str
        The ids of the regions.
    area : str
        The name of the area that the query was about, if it was one.
    by : tuple of pairs
        Each category with its value, "all" for the sum.
    recommended : {"guaranteed", "typical"} or None
        Which of the two intervals to use.
    truncated : bool
        Whether rows were dropped before counting. A note says which, and the intervals are of the rest.
    max_size : int
        The last size of the release, which stands for all larger ones too.
    """

    question: str
    kind: QueryKind
    released: float | None  # None where the released denominator is zero
    unbiased: float | None  # a ratio of unbiased estimates for shares and means; None if unknown
    guaranteed: Ends | None  # may be infinite
    typical: Ends | None
    confidence: float
    notes: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()  # ids
    area: str = ""  # the area's name, if the query is about an area
    by: tuple[tuple[str, str], ...] = ()  # each category with its value, "all" for the sum; none without categories
    recommended: Kind | None = None  # which of the two intervals to use; None without intervals
    truncated: bool = False  # rows were dropped before counting: a note says which; the intervals are about the rest
    max_size: int = 0  # stands for all larger sizes too

    @property
    def interval(self) -> Ends | None:
        """Return the recommended interval."""
        return self.typical if self.recommended == "typical" else self.guaranteed

    def is_exact(self, ends: Ends) -> bool:
        """Return whether an interval of this answer says that the number is known exactly.

        A single size can be the only one that the bounds allow, so an interval of a quantile does not say so.

        Parameters
        ----------
        ends : pair of float
            The interval.

        Returns
        -------
        bool
            Whether the number is known exactly.
        """
        return ends[0] == ends[1] and self.kind not in SIZE_KINDS

    def shown(self, value: float | None) -> str:
        """Format a value of this answer for people: a count, a percentage or a number with at least four digits.

        Parameters
        ----------
        value : float or None
            The value.

        Returns
        -------
        str
            The text.
        """
        return self._text(value, ROUND_HALF_EVEN)

    def between(self, ends: Ends | None) -> str:
        """Format an interval for people, rounded outward: the text contains the whole interval.

        Parameters
        ----------
        ends : pair of float or None
            The interval.

        Returns
        -------
        str
            The text.
        """
        return "none" if ends is None else " … ".join(self.shown_ends(ends))

    def shown_ends(self, ends: Ends) -> tuple[str, str]:
        """Format both ends of an interval for people, the lower one rounded down and the upper one up.

        Parameters
        ----------
        ends : pair of float
            The interval.

        Returns
        -------
        tuple of str
            The two texts.
        """
        return self._text(ends[0], ROUND_FLOOR), self._text(ends[1], ROUND_CEILING)

    def _text(self, value: float | None, rounding: str) -> str:
        if value is None or math.isnan(value):
            return "undefined"
        if math.isinf(value):
            return "−∞" if value < 0 else "∞"
        if self.kind in SIZE_KINDS:
            return size_label(int(value), self.max_size)
        with localcontext(prec=DIGITS_OF_FLOATS):
            number = +Decimal(value) * (100 if self.kind == "share" else 1)
            whole = number == round(number)
        decimals = (0 if whole else 1) if self.kind in LINEAR_KINDS else self._decimals(number)
        with localcontext(prec=100):
            text = f"{number.quantize(Decimal(1).scaleb(-decimals), rounding):,f}"
        if "." in text and self.kind not in LINEAR_KINDS:
            text = text.rstrip("0").rstrip(".")
        return f"{text.replace('-', '−')} %" if self.kind == "share" else text.replace("-", "−")

    def _decimals(self, number: Decimal) -> int:
        """Return four digits of a number; more if a narrow interval needs more to distinguish its ends."""
        widths = [high - low for low, high in (self.guaranteed or (0, 0), self.typical or (0, 0))]
        finite = [100 * width if self.kind == "share" else width for width in widths if 0 < width < math.inf]
        needed = [1 - math.floor(math.log10(width)) for width in finite]
        return min(max([3 - number.adjusted() if number else 0, *needed]), DIGITS_OF_FLOATS - 1 - number.adjusted())

    @property
    def truth(self) -> str:
        """Return in words what the intervals are about."""
        what = {"mean": "the truncated mean", "gini": "the truncated coefficient"}.get(self.kind, "the truth")
        return f"{what} {AS_TRUNCATED}" if self.truncated else what

    @property
    def sentence(self) -> str:
        """Return the answer in words."""
        percent, what = in_percent(self.confidence), f"{self.question[0].upper()}{self.question[1:]}"
        told, ends = [f"{what}: {self.shown(self.released)}."], self.interval
        if ends is None:
            return " ".join([*told, *self.notes])
        if self.is_exact(ends):
            told.append("It is known exactly.")
        elif not all(map(math.isfinite, ends)):
            told.append(f"The {self.recommended} interval is unbounded.")
        else:
            low, high = self.shown_ends(ends)
            sure = self.recommended == "guaranteed"
            where = f"lies from {low} to {high}" if low != high else f"is {low}"
            told.append(
                f"{'For any data,' if sure else 'For data like the released ones'} {self.truth} {where} with a "
                f"probability of {'at least' if sure else 'about'} {percent}."
            )
        return " ".join([*told, *self.notes])

    def __repr__(self) -> str:
        percent = in_percent(self.confidence)
        ends = {"guaranteed": self.guaranteed, "typical": self.typical}
        told = [
            f"{kind} {self.between(found)} at {percent}{' (recommended)' if kind == self.recommended else ''}"
            for kind, found in ends.items()
            if found is not None
        ]
        return f"Answer({quoted(self.question)}, {', '.join([self.shown(self.released), *told])})"

    def _repr_html_(self) -> str:
        percent = in_percent(self.confidence)
        found = {
            "released": self.shown(self.released),
            "unbiased": "" if self.unbiased is None else self.shown(self.unbiased),
            **{
                f"{kind} at {percent}{', recommended' if kind == self.recommended else ''}": self.between(ends)
                for kind, ends in (("guaranteed", self.guaranteed), ("typical", self.typical))
            },
        }
        return page(self.question, found, paragraph(self.sentence))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an end that is infinite or missing is None."""

        def ends(found: Ends | None) -> list[float | None] | None:
            return None if found is None else [end if math.isfinite(end) else None for end in found]

        return {
            "question": self.question,
            "kind": self.kind,
            "regions": list(self.regions),
            **({"area": self.area} if self.area else {}),
            **({"by": dict(self.by)} if self.by else {}),
            "released": self.released,
            "unbiased": self.unbiased,
            "guaranteed": ends(self.guaranteed),
            "typical": ends(self.typical),
            "recommended": self.recommended,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "truncated": self.truncated,
            "sentence": self.sentence,
        }
