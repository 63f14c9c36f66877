"""What can be wrong with a program? It makes no sense (ProgramError), or can never end (DeadlockError)."""

from __future__ import annotations


class ProgramError(ValueError):
    """The program is not executable: an unknown id, an impossible amount, a task without a lane."""


class DeadlockError(RuntimeError):
    """Some tasks can never end. `blocked` has their ids; the message says what the first of them wait for."""

    def __init__(self, message: str, blocked: tuple[int, ...]) -> None:
        super().__init__(message)
        self.blocked = blocked
