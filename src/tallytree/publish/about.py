"""`About`: who publishes a release or a synthesis, and what the data are about, in the publisher's words.

All of it is declared and public. It appears in the privacy statement, the data package, exports and the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from typing import Any

from tallytree.core.arguments import MAPPING, TEXT, Kind, expect
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.numbers import short

REFERENCE_DATE = "[0-9]{4}(-Q[1-4]|-[0-9]{2}(-[0-9]{2})?)?"  # before months and days are looked up
DECLARED = "who published it and what the data are about, as the publisher states it (the same in all files)"
LONGEST = 10_000  # characters of a text
LONGEST_WORD = 60  # characters of a word for groups or entities
WORDS = ("groups", "entities")
ABOUT_TEXT = Kind(f"a text of at most {LONGEST:,} characters", lambda text: TEXT.holds(text) and len(text) <= LONGEST)


@dataclass(frozen=True)
class About:
    """Who publishes the data, and what they are about: declared by the publisher and repeated in all files."""

    publisher: str = ""
    contact: str = ""
    licence: str = ""
    reference_date: str = ""  # the time that the data are about: 2025, 2025-Q1, 2025-03 or 2025-03-31
    description: str = ""
    source: str = ""
    groups: str = "groups"  # what these are called, in the plural, such as households
    entities: str = "entities"

    def __post_init__(self) -> None:
        for name, text in vars(self).items():
            expect(text, ABOUT_TEXT, f"{name} of [about]")
        for name in WORDS:
            word = getattr(self, name)
            if not word.strip() or len(word) > LONGEST_WORD:
                raise SpecError(f"{name} = {short(word)} is not a valid name; expected a plural such as 'households'")
        if self.reference_date and not is_reference_date(self.reference_date):
            given = short(self.reference_date)
            raise SpecError(
                f"reference_date = {given} of [about] is not a date; expected 2025, 2025-Q1, 2025-03 or 2025-03-31"
            )

    @classmethod
    def of(cls, value: About | Mapping[str, Any] | None) -> About:
        """Return what a mapping states; dates and years may be such values."""
        if value is None or isinstance(value, About):
            return value or NOT_STATED
        known = [one.name for one in fields(cls)]
        expect(value, MAPPING, "about")
        if unknown := [name for name in value if name not in known]:
            raise SpecError(f"about has no key {short(unknown[0])}; {did_you_mean(unknown[0], known)}")
        return cls(**{name: reference_text(text) if name == "reference_date" else text for name, text in value.items()})

    def to_json(self) -> dict[str, str]:
        """Return what was stated, by name."""
        return {one.name: text for one in fields(self) if (text := getattr(self, one.name)) != one.default}

    def called(self, groups: str | None = None, entities: str | None = None) -> About:
        """Return the same with other words for groups and entities, where they are given."""
        given = {"groups": groups, "entities": entities}
        return replace(self, **{name: word for name, word in given.items() if word is not None})

    @property
    def has_email(self) -> bool:
        """Return whether the contact is an email address."""
        return re.fullmatch(r"[^\s@]+@[^\s@]+", self.contact) is not None

    def in_statement(self) -> dict[str, Any]:
        """Return the entry of a privacy statement; nothing if nothing was stated."""
        return {"about": found} if (found := self.to_json()) else {}

    def in_package(self, guarantee: str) -> dict[str, Any]:
        """Return the entries of a data package; its description begins with that of the publisher."""
        licence = {"path" if "://" in self.licence else "name": self.licence}
        publisher = {"title": self.publisher, "role": "publisher"}
        email = {"email": self.contact} if self.has_email else {}
        return {
            "description": f"{self.description} {guarantee}".lstrip(),
            **({"contributors": [{**publisher, **email}]} if self.publisher else {}),
            **({"contact": self.contact} if self.contact else {}),
            **({"licenses": [licence]} if self.licence else {}),
            **({"temporal": self.reference_date} if self.reference_date else {}),
            **({"sources": [{"title": self.source}]} if self.source else {}),
        }

    def in_dublin_core(self) -> dict[str, str]:
        """Return what was stated with the names of Dublin Core, and the contact with that of schema.org."""
        names = {"licence": "dc:license", "reference_date": "dc:temporal", "contact": "schema:contactPoint"}
        stated = {name: text for name, text in self.to_json().items() if name not in WORDS}
        return {names.get(name, f"dc:{name}"): text for name, text in stated.items()}

    def cite(self, kind: str, title: str, release_id: str | None, version: str) -> str:
        """Return a citation: publisher, reference date, title, id and software.

        >>> About("Statistics Office", reference_date="2025").cite("Release", "Homes", "a1b2" * 16, "1.0")
        'Statistics Office. Homes (2025). Release a1b2a1b2a1b2a1b2, made with tallytree 1.0.'
        """
        when = f" ({self.reference_date})" if self.reference_date else ""
        which = "" if release_id is None else f" {release_id[:16]}"
        front = f"{self.publisher}. " if self.publisher else ""
        return f"{front}{title}{when}. {kind}{which}, made with tallytree {version}."


NOT_STATED = About()


def is_reference_date(text: str) -> bool:
    """Return whether a text is a year, a quarter, a month or a day of the calendar.

    >>> [is_reference_date(text) for text in ("2025", "2025-Q4", "2025-02", "2025-02-28", "2025-02-29", "1 May")]
    [True, True, True, True, False, False]
    """
    if not re.fullmatch(REFERENCE_DATE, text):
        return False
    if "Q" in text or len(text) == len("2025"):
        return True
    try:
        date.fromisoformat(text if len(text) > len("2025-02") else f"{text}-01")
    except ValueError:
        return False
    return True


def reference_text(value: Any) -> Any:
    """Return a date or a year as the text of a reference date; anything else as it is."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return f"{value:04d}" if isinstance(value, int) and not isinstance(value, bool) else value
