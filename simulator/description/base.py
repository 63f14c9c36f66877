"""What every description class is: a frozen, keyword-only pydantic model that remembers where it was read."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from simulator.description.faults import Fault, Place, fault_at


class Description(BaseModel):
    """Base of all descriptions. Unknown keys, infinities and truth values in place of numbers are refused.

    Equality and hash go by the fields; `sources` (where numbers come from) takes no part in the hash.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=False,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
        protected_namespaces=(),
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            if annotation in (int, float) or (
                {int, float} & set(get_args(annotation)) and bool not in get_args(annotation)
            ):
                raise ValueError(f"{str(value).lower()} is not a number")
        return value

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in type(self).model_fields if name != "sources")
        return hash((type(self), *map(_hashable, values)))

    def place_of(self, key: str) -> Place:
        """Where the dotted `key` (or its nearest parent) of this loaded description was written."""
        places: dict[str, Place] = self.__dict__.get("_places", {})
        while key and key not in places:
            key = key.rpartition(".")[0]
        return places.get(key, Place(getattr(self, "name", "") or type(self).__name__))

    def fault(self, key: str, message: str) -> Fault:
        """A fault at the place where `key` of this description was written (for checks after loading)."""
        return fault_at(self.place_of(key), key, message)


class Named(Description):
    """A description that stands in a catalogue file of its own."""

    name: str = Field(default="", description="Name; the file's name where it is left out.")
    sources: dict[str, str] = Field(
        default_factory=dict,
        description="Where the numbers come from: key path to text (datasheet, paper, ...).",
    )


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value
