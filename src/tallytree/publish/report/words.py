"""How numbers are written on pages, and what groups and entities are called there."""

from __future__ import annotations

from dataclasses import dataclass

from tallytree.core.errors import SpecError

LONGEST = 60  # characters of a word for groups or entities


@dataclass(frozen=True)
class Words:
    """What groups and entities are, in the plural: households and persons, say."""

    groups: str = "groups"
    entities: str = "entities"

    def __post_init__(self) -> None:
        for name, word in vars(self).items():
            if not isinstance(word, str) or not word.strip() or len(word) > LONGEST:
                raise SpecError(f"{name} = {word!r} is no word for them; expected a plural such as 'households'")


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.2551), percent(0.0123), percent(0.0004), percent(0)
    ('25.5 %', '1.2 %', '0.04 %', '0 %')
    """
    value = 100 * share
    if value == 0:
        return "0 %"
    return f"{value:.1f} %" if value >= 0.95 else f"{value:.1g} %"


def about(value: float) -> str:
    """A number with as many digits as its size deserves.

    >>> about(2.345), about(23.45), about(2345.6)
    ('2.35', '23.5', '2,346')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def listed(words: list[str]) -> str:
    """Words with commas and an "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
