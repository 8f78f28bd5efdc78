"""Who takes part in a dynamic rendezvous: plain data that all machines change, one after the other.

A round is open until enough machines take part; then it is complete, and they have ranks. Machines that come later
wait. A round ends when all that took part have left it, and the next one is open. Nothing here knows of networks or
clocks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from tensorgrad.distributed.elastic.rendezvous.api import RendezvousStateError

__all__ = ["Round"]


@dataclass
class Round:
    """The present round. Machines have names, by whose order they are ranked.

    >>> from tensorgrad.distributed.elastic.rendezvous.rounds import Round
    >>> round = Round()
    >>> round.join("b", 2, 3, last_call_over=False), round.join("a", 2, 3, last_call_over=True)
    (False, True)
    >>> round.participants, round.join("c", 2, 3, last_call_over=True), round.waiting
    ({'b': 1, 'a': 0}, False, ['c'])
    """

    number: int = 0
    complete: bool = False
    closed: bool = False
    participants: dict[str, int] = field(default_factory=dict)  # their ranks; -1 in an open round
    waiting: list[str] = field(default_factory=list)  # for whom there is room in the next round
    spare: list[str] = field(default_factory=list)  # for whom there is not: they replace those that are lost
    pulses: dict[str, int] = field(default_factory=dict)  # of each machine, a counter that it increases

    @classmethod
    def from_bytes(cls, data: bytes) -> Round:
        """What `to_bytes` returned. Raises: RendezvousStateError if it is something else."""
        try:
            found = json.loads(data)
            known = cls(**found)
            if {name: type(value) for name, value in asdict(known).items()} != _TYPES:
                raise ValueError("fields have other types")
        except (ValueError, TypeError) as error:
            raise RendezvousStateError(f"the rendezvous's state is corrupt: {error}") from None
        return known

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    def join(self, node: str, least: int, most: int, last_call_over: bool) -> bool:
        """A machine wants to take part. Returns whether the round is complete, and it does.

        Args:
            node: its name.
            least, most: how many machines take part.
            last_call_over: whether the round need not wait for more than `least`.
        """
        if not self.complete and node not in self.participants and len(self.participants) < most:
            self._forget(node)
            self.participants[node] = -1
        elif node not in self.participants:
            self._forget(node)
            (self.waiting if len(self.participants) < most else self.spare).append(node)
        count = len(self.participants)
        if not self.complete and (count == most or (count >= least and last_call_over)):
            self.complete = True
            for rank, name in enumerate(sorted(self.participants)):
                self.participants[name] = rank
        return self.complete and node in self.participants

    def remove(self, node: str) -> None:
        """A machine has left, or is lost."""
        self._forget(node)
        self.pulses.pop(node, None)
        self.participants.pop(node, None)
        if self.complete and not self.participants:
            self.complete, self.number = False, self.number + 1

    def _forget(self, node: str) -> None:
        for names in (self.waiting, self.spare):
            if node in names:
                names.remove(node)


_TYPES = {name: type(value) for name, value in asdict(Round()).items()}
