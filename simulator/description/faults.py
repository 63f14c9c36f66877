"""What is wrong with a description, and where: one fault a line, `file:line:column: key: message`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

LONGEST_TEXT = 80
MISSING = "is missing"
MOST_FAULTS = 100  # listed of one file: nobody reads more, and each one costs a search for what was meant


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file, from line 1, column 1; line 0: `file` has no lines (`--set a=b`)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: the place, the dotted key path (empty for the whole file), and the message."""

    file: str
    line: int
    column: int
    key: str
    message: str

    @property
    def is_missing(self) -> bool:
        """Whether what is wrong is that the key is not there."""
        return self.message.startswith(MISSING)

    def __str__(self) -> str:
        place = Place(printable(self.file), self.line, self.column)
        return f"{place}: {printable(self.key) or '(file)'}: {printable(self.message, longest=2000)}"


def fault_at(place: Place, key: str, message: str) -> Fault:
    return Fault(place.file, place.line, place.column, key, message)


class DescriptionError(Exception):
    """A description cannot be used; carries every fault that was found in it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(set(faults), key=lambda f: (f.file, f.line, f.column, f.key, f.message))
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[DescriptionError], tuple[list[Fault]]]:
        return DescriptionError, (self.faults,)


class KeyFaults(ValueError):
    """Raised by a validator of a description to blame keys below it: `KeyFaults([("tp", "3 does not ...")])`.

    Keys are dotted paths relative to the description whose validator raises.
    """

    def __init__(self, faults: Iterable[tuple[str, str]]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(f"{key}: {message}" for key, message in self.faults))

    def __reduce__(self) -> tuple[type[KeyFaults], tuple[list[tuple[str, str]]]]:
        return type(self), (self.faults,)


def raise_if_any(faults: Iterable[tuple[str, str]]) -> None:
    """Raise KeyFaults with all (key, message) pairs, if there are any."""
    if found := list(faults):
        raise KeyFaults(found)


def suggestion(word: str, known: Iterable[str]) -> str:
    """`"; did you mean x?"` for the nearest of `known`, else `""`. Case and `-`/`_` count little."""

    def plain(text: str) -> str:
        return text.lower().replace("-", "_")

    by_plain = {plain(name): name for name in sorted(known, reverse=True)}
    near = get_close_matches(plain(word), sorted(by_plain), n=1, cutoff=0.6)
    return f"; did you mean {by_plain[near[0]]}?" if near else ""


def listing(names: Sequence[str], most: int = 12) -> str:
    """Names for a message: `a, b, c` and, where there are many, how many more."""
    shown = ", ".join(names[:most])
    return f"{shown}, ... ({len(names) - most} more)" if len(names) > most else shown


def printable(text: str, longest: int = 400) -> str:
    """One line that is safe on a terminal: control characters escaped, very long text cut."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return safe if len(safe) <= longest else safe[: longest - 3] + "..."


def shown(value: object) -> str:
    """A value as a message quotes it: short and on one line."""
    return printable(value if isinstance(value, str) else repr(value), LONGEST_TEXT)
