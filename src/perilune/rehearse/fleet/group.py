"""The servers of one role, as the router sees them."""

from __future__ import annotations

from collections.abc import Sequence

from perilune.rehearse.fleet.policies import Policy
from perilune.rehearse.request import Request


class Group:
    """Servers behind one policy: which of them are up, and how many requests the router has with each."""

    def __init__(self, policy: Policy, size: int) -> None:
        self._policy = policy
        self.loads = [0] * size
        self._up: Sequence[int] = range(size)

    @property
    def any_up(self) -> bool:
        """Whether a request can be sent to one."""
        return len(self._up) > 0

    def send(self, request: Request, now: int) -> int:
        """Choose a server for a request and count it there, until `answered`."""
        index = self._policy.pick(request, self.loads, self._up, now)
        self.loads[index] += 1
        return index

    def answered(self, index: int) -> None:
        """A request that was sent there has ended."""
        self.loads[index] -= 1

    def down(self, index: int) -> None:
        """The router is told that a server is lost."""
        self._up = [one for one in self._up if one != index]
        self._policy.left(index)

    def back(self, index: int) -> None:
        """The router is told that a server is there again."""
        self._up = sorted([*self._up, index])
