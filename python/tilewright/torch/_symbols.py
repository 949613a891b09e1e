"""Symbolic sizes: torch's expressions over sizes as nodes of a model, as names of dimensions and as Python code."""

from __future__ import annotations

import re
from typing import Any, Callable, Sequence

import sympy
import torch

from ._errors import Unsupported


def expression(size: Any) -> sympy.Expr:
    """The expression of an int or SymInt."""
    if isinstance(size, torch.SymInt):
        return sympy.sympify(size.node.expr)
    return sympy.Integer(int(size))


def is_symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and not expression(size).is_number


def dimension(size: Any) -> int | str:
    """What a model declares for a size: a number, or a name. A name such as '2*s0 + s1' is that sum."""
    e = expression(size)
    if e.is_number:
        return int(e)
    text = str(e)
    return text if re.fullmatch(r"[\w +]+(\*?[\w +]+)*", text) else re.sub(r"\W+", "_", text).strip("_")


# Functions of torch's size expressions, by class name -> Python. Sizes are not negative, and neither are divisors.
_PYTHON = {
    "FloorDiv": "({0} // {1})",
    "CleanDiv": "({0} // {1})",
    "Mod": "({0} % {1})",
    "PythonMod": "({0} % {1})",
    "ModularIndexing": "(({0} // {1}) % {2})",
    "Max": "max({0})",
    "Min": "min({0})",
    "CeilToInt": "{0}",
    "FloorToInt": "{0}",
}


def python_text(e: sympy.Expr, names: dict[sympy.Symbol, str]) -> str:
    """Python code that computes the expression."""
    if e.is_Symbol:
        if e not in names:
            raise Unsupported(f"size {e} is that of no input")
        return names[e]
    if e.is_Integer:
        return str(int(e))
    args = [python_text(a, names) for a in e.args]
    kind = type(e).__name__
    if kind in ("Add", "Mul"):
        return "(" + (" + " if kind == "Add" else " * ").join(args) + ")"
    if kind == "Pow" and e.args[1].is_Integer and e.args[1] >= 0:
        return f"({args[0]} ** {args[1]})"
    if kind in ("Max", "Min"):
        return _PYTHON[kind].format(", ".join(args))
    if kind in _PYTHON:
        return _PYTHON[kind].format(*args)
    raise Unsupported(f"the size {e} is computed by {kind}")


def shape_function(shapes: Sequence[Sequence[Any]], names: dict[sympy.Symbol, str], arguments: Sequence[str]) -> Callable:
    """A function of the sizes named `arguments` that returns the shapes: a tuple of tuples of int."""
    text = ", ".join("(" + "".join(python_text(expression(d), names) + ", " for d in s) + ")" for s in shapes)
    return eval(f"lambda {', '.join(arguments)}: ({text}{',' if text else ''})")


class Sizes:
    """Where the symbols of a graph's sizes come from, and the nodes that compute expressions of them."""

    def __init__(self, converter: Any) -> None:
        self._c = converter
        self._source: dict[sympy.Symbol, Callable[[], str]] = {}
        self._made: dict[sympy.Expr, str] = {}  # expression -> a scalar of int64

    def add_scalar(self, symbol: sympy.Symbol, value: str) -> None:
        """An input of the model is the symbol."""
        self._made[symbol] = value

    def add_shape(self, value: str, shape: Sequence[Any]) -> None:
        """An input's dimensions are sources of the symbols in them: those that are one symbol, or linear in one."""
        for axis, size in enumerate(shape):
            e = expression(size)
            for symbol in e.free_symbols:
                if e != symbol and not (len(e.free_symbols) == 1 and sympy.diff(e, symbol).is_Integer):
                    continue
                if e == symbol or symbol not in self._source:
                    self._source[symbol] = lambda e=e, s=symbol, axis=axis: self._from_dimension(value, axis, e, s)

    def _from_dimension(self, value: str, axis: int, e: sympy.Expr, symbol: sympy.Symbol) -> str:
        size = self._c.op("Squeeze", self._c.op("Shape", value, start=axis, end=axis + 1))
        factor = int(sympy.diff(e, symbol))
        added = int(e.subs(symbol, 0))
        if added:
            size = self._c.op("Sub", size, self._c.scalar_of(added, torch.int64))
        return size if factor == 1 else self._c.op("Div", size, self._c.scalar_of(factor, torch.int64))

    def known(self, e: sympy.Expr) -> bool:
        """Whether the symbols of an expression have sources."""
        return e in self._made or all(s in self._made or s in self._source for s in e.free_symbols)

    def scalar(self, size: Any) -> str:
        """A scalar of int64 that is the size."""
        return self._scalar(expression(size))

    def _scalar(self, e: sympy.Expr) -> str:
        if e not in self._made:
            self._made[e] = self._make(e)
        return self._made[e]

    def _make(self, e: sympy.Expr) -> str:
        c = self._c
        if e.is_Integer:
            return c.scalar_of(int(e), torch.int64)
        if e.is_Symbol:
            if e not in self._source:
                raise Unsupported(f"size {e} is that of no input", "it depends on data: leave this part to torch")
            return self._source[e]()
        kind = type(e).__name__
        if kind in ("Add", "Mul"):
            return self._chain(kind, e.args)
        if kind in ("Max", "Min"):
            return c.op(kind, *[self._scalar(a) for a in e.args])
        if kind == "Pow" and e.args[1].is_Integer and e.args[1] >= 0:
            return self._chain("Mul", [e.args[0]] * int(e.args[1])) if e.args[1] > 0 else c.scalar_of(1, torch.int64)
        if kind in ("FloorDiv", "CleanDiv"):  # sizes and divisors are positive: truncation is floor
            return c.op("Div", *[self._scalar(a) for a in e.args])
        if kind in ("Mod", "PythonMod"):
            return c.op("Mod", *[self._scalar(a) for a in e.args])
        if kind == "ModularIndexing":
            return c.op("Mod", c.op("Div", self._scalar(e.args[0]), self._scalar(e.args[1])), self._scalar(e.args[2]))
        if kind in ("CeilToInt", "FloorToInt"):
            return self._scalar(e.args[0])
        raise Unsupported(f"the size {e} is computed by {kind}")

    def _chain(self, operator: str, args: Sequence[sympy.Expr]) -> str:
        value = self._scalar(args[0])
        for a in args[1:]:
            value = self._c.op(operator, value, self._scalar(a))
        return value
