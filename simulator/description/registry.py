"""How an open set of description classes (fabric kinds, model families, ...) becomes one validated type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

Model = TypeVar("Model", bound=type[BaseModel])


def _fields(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    return cls.model_fields


class Registry:
    """Named description classes told apart by one key (the discriminator).

    Each class is one file, decorated with `@REGISTRY.register("name")`, and declares the discriminator
    itself: `kind: Literal["name"] = "name"`. A field of the open type is written `fabric: Annotated[Fabric,
    REGISTRY]`; its union is built when the schema of the class that has the field is first needed, so that
    every class registered by then takes part.
    """

    def __init__(self, what: str, discriminator: str) -> None:
        self.what = what
        self.discriminator = discriminator
        self.classes: dict[str, type[BaseModel]] = {}

    def register(self, name: str) -> Callable[[Model], Model]:
        """Add a class under `name`. Raises ValueError if it is taken or the class does not declare it."""

        def add(cls: Model) -> Model:
            field = _fields(cls).get(self.discriminator)
            if field is None or name not in get_args(field.annotation):
                raise ValueError(
                    f"{cls.__name__} must declare {self.discriminator}: Literal[{name!r}] = {name!r}"
                )
            if name in self.classes and self.classes[name].__qualname__ != cls.__qualname__:
                raise ValueError(f"{self.what} {name!r} is registered twice")
            self.classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        return sorted(self.classes)

    def __getitem__(self, name: str) -> type[BaseModel]:
        return self.classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.classes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: handler.generate_schema(self.classes[name]) for name in self.names()}
        return core_schema.tagged_union_schema(choices, self.discriminator)

    def __hash__(self) -> int:  # pydantic keeps field metadata in sets
        return id(self)
