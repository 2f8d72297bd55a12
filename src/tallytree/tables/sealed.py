"""What private data are held in: `Sealed`, which the privacy border opens, and values that cannot be copied out."""

from __future__ import annotations

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

    `tallytree.privacy` opens it, in `measure` and in `households.rounds`; a test looks for any other caller.
    """

    __slots__ = ("__content",)

    def __init__(self, content: Content) -> None:
        self.__content = content

    def open_at_the_privacy_border(self) -> Content:
        """The private content."""
        return self.__content

    def __repr__(self) -> str:
        return "Sealed(private)"

    __array__ = __iter__ = __len__ = __getitem__ = __bool__ = Unsharable._refuse
    __eq__ = __format__ = Unsharable._refuse
    __hash__ = None  # type: ignore[assignment]
