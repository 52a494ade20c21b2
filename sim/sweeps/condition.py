"""Conditions of a sweep, such as ``engine.block_size * memory.num_gpu_blocks <= 1000000``.

An entry of a list is written ``workloads[0].limit``; a variant is known by name as ``variant``.  A condition
is an expression over configuration paths, numbers, texts and lists; nothing in it is called, and
nothing but the configuration can be reached.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from sim.errors import ConfigError

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_NAMES = {"true": True, "false": False, "null": None}
Lookup = Callable[[str], Any]


class Condition:
    """A parsed condition.  Raises `ConfigError` when the text is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error) or "too deep"
            raise ConfigError(f"sweep.where: {text!r}: {reason}; write it like a.b * c.d <= 100") from None
        self._check(self._tree)

    def _check(self, node: ast.AST) -> None:
        """Refuse everything that is not plain arithmetic, comparison or logic."""
        allowed = (
            ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Constant,
            ast.Name, ast.Attribute, ast.Subscript, ast.Load, ast.List, ast.Tuple, *_BINARY, *_COMPARE,
        )  # fmt: skip
        for inner in ast.walk(node):
            if not isinstance(inner, allowed):
                kind = type(inner).__name__
                raise ConfigError(
                    f"sweep.where: {self.text!r}: {kind} is not allowed; use paths, numbers, + - * / // %, "
                    "comparisons, in, and, or, not"
                )
            if isinstance(inner, ast.Attribute | ast.Subscript):
                self._path(inner)

    def holds(self, lookup: Lookup) -> bool:
        """Whether it is true, given a function from configuration path to value.

        The function raises `KeyError` with the path, and maybe a hint, for one that there is not.
        Raises `ConfigError` then, and when the values cannot be computed with.
        """
        try:
            return bool(self._value(self._tree, lookup))
        except KeyError as error:
            path, *hint = error.args
            said = "; ".join([f"{path} is no value of the configuration", *hint])
            raise ConfigError(f"sweep.where: {self.text!r}: {said}") from None
        except (TypeError, ArithmeticError) as error:
            raise ConfigError(f"sweep.where: {self.text!r}: {error}") from None

    def _path(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._path(node.value)}.{node.attr}"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int:
            return f"{self._path(node.value)}.{node.slice.value}"
        raise ConfigError(f"sweep.where: {self.text!r}: a path is names joined by dots, such as workloads[0].limit")

    def _value(self, node: ast.expr, lookup: Lookup) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in _NAMES:
                return _NAMES[name]
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return lookup(self._path(node))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, lookup) for item in items]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand, lookup)
            case ast.UnaryOp(operand=operand):
                return -self._value(operand, lookup)
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](*(self._number(side, lookup) for side in (left, right)))
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self._value(value, lookup) for value in values)
            case ast.BoolOp(values=values):
                return any(self._value(value, lookup) for value in values)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(left, ops, comparators, lookup)
        raise ConfigError(f"sweep.where: {self.text!r}: {type(node).__name__} is not allowed")

    def _number(self, node: ast.expr, lookup: Lookup) -> int | float:
        value = self._value(node, lookup)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{value!r} is no number to calculate with")
        return value

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr], lookup: Lookup) -> bool:
        value = self._value(left, lookup)
        for op, node in zip(ops, comparators, strict=True):
            other = self._value(node, lookup)
            if not _COMPARE[type(op)](value, other):
                return False
            value = other
        return True
