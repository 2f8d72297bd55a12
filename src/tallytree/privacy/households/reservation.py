"""A reservation is good for one set of noise: how a journal and the ledger keep each other from drawing a round twice.

A round goes through these steps, each on disk before the next: (1) the journal puts it down with a mark made by chance,
(2) the ledger begins it (`Ledger.begin_round`): it is the next number, and all rounds fit into the reservation, (3)
noise is drawn, (4) the journal records the result.

*Over all copies of a journal the rounds that are drawn cost no more than the reservation.* Noise of round n is drawn
after a call of `begin_round` for n returned, in the process that called it, once per call. The ledger lets each n
begin once, whoever asks, and the costs that it let begin add up to at most the reservation. This does not depend on
what any journal holds, so neither copies, restored backups nor kills between the steps can change it.

*A run that was killed can go on.* An honest journal, which nobody else resumed, has j rounds and the ledger l:

- killed before (1), or after (2) or later: j = l, and the marks are equal. A round without a result is lost.
- killed between (1) and (2): j = l + 1, and the last round has no result. It was not drawn. It is begun now, and lost:
  paid for, as its cost is in the journal already.

Everything else is a journal that another run went on from, or a ledger that is not the one of this run, and is refused
before private rows are read: j < l (a copy of it drew further), a mark that is not the ledger's (a copy drew that
round), j > l otherwise (an older ledger was put back).
"""

from __future__ import annotations

from tallytree.core.errors import ReleaseError, TallytreeError
from tallytree.privacy.households.journal import Round, RoundJournal
from tallytree.privacy.ledger import Ledger, Receipt, holding


class Reservation:
    """The ledger's side of a run."""

    def __init__(self, ledger: Ledger, name: str, token: str, journal: RoundJournal) -> None:
        self._ledger, self._name, self._token, self._journal = ledger, name, token, journal

    def check(self) -> None:
        """Refuse to resume unless the ledger holds this reservation, and no other run went on from its rounds."""
        held, ours = holding(self._ledger.account(self._name), self._token), self._journal.rounds
        if held is None or held.number != self._journal.receipt:
            raise ReleaseError(
                "the ledger does not hold the reservation that this journal was begun with: resume with the ledger "
                "of the first run"
            )
        begun = [(each.mark, each.cost) for each in held.rounds]
        known = [(each.mark, each.cost) for each in ours]
        if len(known) < len(begun) or known[: len(begun)] != begun:
            raise ReleaseError(
                f"this journal is a copy, or was restored: it has {len(known)} rounds, and of the {len(begun)} that "
                "the ledger knows some were drawn by another run. Nothing was drawn now. Go on with that run's folder."
            )
        ahead = ours[len(begun) :]
        if len(ahead) > 1 or any(each.result is not None for each in ahead):
            raise ReleaseError(
                f"the ledger knows {len(begun)} of this journal's {len(known)} rounds: an older copy of the ledger was "
                "put in its place. Nothing was drawn now. Restore the newest copy."
            )

    def catch_up(self) -> None:
        """Tell the ledger of a round that was cut off before it knew; nothing was drawn for it, and nothing will be."""
        held = holding(self._ledger.account(self._name), self._token)
        begun = 0 if held is None else len(held.rounds)
        for number, past in enumerate(self._journal.rounds[begun:], start=begun + 1):
            self.begin(number, past)

    def begin(self, number: int, past: Round) -> None:
        """Begin a round that the journal put down; its noise may be drawn once this returns."""
        assert self._journal.receipt is not None
        receipt = Receipt(str(self._ledger.path), self._journal.receipt)
        self._ledger.begin_round(receipt, number=number, cost=past.cost, mark=past.mark)


def is_made(ledger: Ledger, name: str | None, token: str) -> bool:
    """Does the ledger hold the reservation with this token? Yes, too, if it cannot be asked."""
    try:
        return holding(ledger.account(name or ""), token) is not None
    except TallytreeError:
        return True
