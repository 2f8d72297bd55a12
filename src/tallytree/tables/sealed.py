"""What private data are held in: `Sealed`, which the privacy border opens, and values that cannot be copied out."""

from __future__ import annotations

from dataclasses import fields
from operator import is_
from typing import Any, Generic, NoReturn, TypeVar

Content = TypeVar("Content")


class Unsharable:
    """Cannot be pickled or copied, so that private data stay where they are."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} may hold private data: it cannot be pickled, copied, compared or converted"
        )

    __reduce_ex__ = __reduce__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


class Sealed(Unsharable, Generic[Content]):
    """Holds private content; cannot be printed, pickled, copied, compared or turned into an array.

    `tallytree.privacy` opens it, in `run` and in `private_tables`; a test looks for any other caller.
    """

    __slots__ = ("__content", "__facts")

    def __init__(self, content: Content) -> None:
        self.__content = content
        self.__facts: tuple[Any, ...] | None = None

    def bind(self, facts: tuple[Any, ...]) -> None:
        """Tie the public facts that the content was made under to it, once: a seal that has some takes no others."""
        if self.__facts is not None:
            raise TypeError(
                "this seal belongs to another value already: private data keep the bounds that they were read with. "
                "Read them again to have others"
            )
        self.__facts = facts

    def is_bound_to(self, facts: tuple[Any, ...]) -> bool:
        """Are these the very facts that were tied to the content?"""
        mine = self.__facts
        return mine is not None and len(mine) == len(facts) and all(map(is_, mine, facts))

    def open_at_the_privacy_border(self) -> Content:
        """The private content."""
        return self.__content

    def __repr__(self) -> str:
        return "Sealed(private)"

    __array__ = __iter__ = __len__ = __getitem__ = __bool__ = Unsharable._refuse
    __eq__ = __format__ = Unsharable._refuse
    __hash__ = None  # type: ignore[assignment]


class Bound(Unsharable):
    """A dataclass of one seal and the public facts that the sealed content was made under, which cannot be parted.

    The seal takes its facts when the value is made and refuses to be put into a second one: not by
    `dataclasses.replace`, `copy.replace` or the constructor. What goes around these (`object.__setattr__`, an object
    that only looks alike) is found by `check_unaltered`, which the border asks before it takes a bound from a value.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        seal, facts = _parts(self)
        seal.bind(facts)


def check_unaltered(value: Any, kind: type[Bound]) -> None:
    """Refuse what is not of this very class, or has other facts than those its seal was given."""
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__} as read, not {type(value).__name__}")
    seal, facts = _parts(value)
    if not seal.is_bound_to(facts):
        raise TypeError(f"this {kind.__name__} was altered after it was read: its bounds are not those of its data")


def _parts(value: Any) -> tuple[Sealed[Any], tuple[Any, ...]]:
    """The one seal of a value, and everything else that it holds."""
    held = [getattr(value, each.name) for each in fields(value)]
    (seal,) = [each for each in held if isinstance(each, Sealed)]
    return seal, tuple(each for each in held if each is not seal)
