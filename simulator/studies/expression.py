"""Arithmetic in studies: what may be written, and what it comes to.

An expression is a small part of Python's: numbers, names, + - * / // % **, comparisons, `a if c else b`, lists,
indexing, attributes of predictions, `[f(x) for x in list if c]`, and the functions in FUNCTIONS. It is data: it can
neither loop without end, nor reach anything but what it is given.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LONGEST = 2000
MOST_STEPS = 200_000

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class ExpressionError(ValueError):
    """What is wrong with an expression, or why it has no value."""


def _order(values: list[float]) -> list[int]:
    """Positions from the smallest value to the largest."""
    return sorted(range(len(values)), key=lambda index: (values[index], index))


def _interpolate(x: float, xs: list[float], ys: list[float]) -> float:
    import numpy as np

    return float(np.interp(x, xs, ys))


def _seconds(prediction: Any, name: str) -> float:
    from simulator.studies.measures import seconds

    return seconds(prediction, name)


def _collective(prediction: Any, op: str, size: float, axis: str = "dp_cp") -> float:
    from simulator.studies.measures import collective

    return collective(prediction, op, size, axis)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "collective": _collective,
    "exp": math.exp,
    "floor": math.floor,
    "interpolate": _interpolate,
    "len": len,
    "log": math.log,
    "max": max,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "order": _order,
    "product": math.prod,
    "quantity": lambda number, unit: f"{float(number)!r} {unit}",
    "range": lambda *bounds: list(range(*bounds)) if len(range(*bounds)) <= 10_000 else _too_long(),
    "round": round,
    "seconds": _seconds,
    "sorted": sorted,
    "sqrt": math.sqrt,
    "sum": sum,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; `names` are those it needs values for."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def value(self, names: Mapping[str, Any]) -> Any:
        """What it comes to. Raises ExpressionError where it has no value (division by zero, no such attribute)."""
        try:
            return _Evaluation(names).of(self.tree)
        except ExpressionError:
            raise
        except ZeroDivisionError:
            raise ExpressionError(f"divides by zero: {self.text}") from None
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ExpressionError(f"has no value: {error}: {self.text}") from None


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Raises ExpressionError for anything that is no expression of this language."""
    if len(text) > LONGEST:
        raise ExpressionError(f"is longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"is no expression: {error}") from None
    names: set[str] = set()
    _check(tree, frozenset(FUNCTIONS), names)
    return Expression(text, tree, frozenset(names))


def _check(node: ast.AST, bound: frozenset[str], names: set[str]) -> None:
    """Raise ExpressionError at the first node that is not part of the language; collect free names."""
    if isinstance(node, ast.Name):
        if node.id not in bound:
            names.add(node.id)
        return
    if isinstance(node, ast.ListComp):
        for part in node.generators:
            if not isinstance(part.target, ast.Name) or part.is_async:
                raise ExpressionError("a list is made with `for NAME in LIST`")
            _check(part.iter, bound, names)
            bound |= {part.target.id}
            for condition in part.ifs:
                _check(condition, bound, names)
        _check(node.elt, bound, names)
        return
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS) or node.keywords:
            raise ExpressionError(f"only these can be called: {', '.join(FUNCTIONS)}")
        children: list[ast.AST] = list(node.args)
    elif isinstance(node, ast.Attribute):
        if node.attr.startswith("_"):
            raise ExpressionError(f"{node.attr} cannot be looked at")
        children = [node.value]
    elif isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float | str) and node.value is not None:
            raise ExpressionError(f"{node.value!r} is no number")
        return
    elif isinstance(node, ast.BinOp) and (type(node.op) in BINARY or isinstance(node.op, ast.Pow)):
        children = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd | ast.Not):
        children = [node.operand]
    elif isinstance(node, ast.Compare) and all(type(op) in COMPARE for op in node.ops):
        children = [node.left, *node.comparators]
    elif isinstance(node, ast.BoolOp | ast.IfExp | ast.Subscript | ast.List | ast.Tuple):
        allowed = (ast.expr,)
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, allowed)]
        if any(isinstance(child, ast.Slice | ast.Starred) for child in children):
            raise ExpressionError("slices are not part of expressions")
    else:
        raise ExpressionError(f"{type(node).__name__} is not part of expressions")
    for child in children:
        _check(child, bound, names)


class _Evaluation:
    """Walks a checked tree."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self.steps = 0

    def of(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ExpressionError("takes too many steps")
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            raise ExpressionError(f"nothing is called {node.id}")
        return self.names[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        return attribute(self.of(node.value), node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.of(node.value)[self.of(node.slice)]

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.of(item) for item in node.elts)

    def _list(self, node: ast.List) -> list[Any]:
        return [self.of(item) for item in node.elts]

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, ast.Pow):
            return (
                float(left) ** float(right) if not isinstance(left, int) or abs(right) > 64 else left**right
            )
        if isinstance(node.op, ast.Mult) and not (_is_number(left) and _is_number(right)):
            raise ExpressionError("only numbers can be multiplied")
        return BINARY[type(node.op)](left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.of(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) else +value

    def _compare(self, node: ast.Compare) -> bool:
        left = self.of(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.of(comparator)
            if not COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _boolop(self, node: ast.BoolOp) -> bool:
        each = (bool(self.of(value)) for value in node.values)
        return all(each) if isinstance(node.op, ast.And) else any(each)

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.of(node.body if self.of(node.test) else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)  # checked when parsed
        return FUNCTIONS[node.func.id](*(self.of(argument) for argument in node.args))

    def _listcomp(self, node: ast.ListComp) -> list[Any]:
        return self._comprehended(node, 0)

    def _comprehended(self, node: ast.ListComp, depth: int) -> list[Any]:
        if depth == len(node.generators):
            return [self.of(node.elt)]
        part = node.generators[depth]
        assert isinstance(part.target, ast.Name)  # checked when parsed
        found: list[Any] = []
        outer = self.names
        for item in self.of(part.iter):
            self.names = Layered({part.target.id: item}, outer)
            if all(self.of(condition) for condition in part.ifs):
                found += self._comprehended(node, depth + 1)
        self.names = outer
        return found


class Layered(Mapping[str, Any]):
    """Names known here before those known outside; nothing is looked up before it is asked for."""

    def __init__(self, row: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        self._row = row
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._row[name] if name in self._row else self._names[name]

    def __contains__(self, name: object) -> bool:
        return name in self._row or name in self._names

    def __iter__(self) -> Iterator[str]:
        yield from self._row
        yield from self._names

    def __len__(self) -> int:
        return len(self._row) + len(self._names)


def attribute(owner: Any, name: str) -> Any:
    """A key of a mapping, or an attribute of a prediction or description that is a value."""
    if isinstance(owner, Mapping):
        if name not in owner:
            raise ExpressionError(f"there is no {name} (there is {', '.join(map(str, owner))})")
        return owner[name]
    if not type(owner).__module__.startswith("simulator."):
        raise ExpressionError(f"{owner!r} has no {name}")
    value = getattr(owner, name, None)
    if value is None and not hasattr(owner, name):
        raise ExpressionError(f"{type(owner).__name__} has no {name}")
    if callable(value):
        raise ExpressionError(f"{name} is no value")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _too_long() -> Any:
    raise ExpressionError("a range of more than 10,000 numbers")
