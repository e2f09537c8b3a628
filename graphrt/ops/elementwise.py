"""Elementwise ops are an expression: from it come the NumPy kernel, and later the fused CPU kernel and CUDA
source.

    @op("SigmoidGrad(y: T, dy: T) -> z: T", T=FLOATS)
    class SigmoidGrad(Elementwise):
        expression = "dy * y * (1 - y)"

The expression is Python over the input names: arithmetic, comparisons, numbers, `where(c, a, b)` and NumPy's
ufuncs by name. Numbers take the inputs' dtype. Inputs broadcast as NumPy's do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.registry import KernelContext, ShapeContext
from graphrt.core.shapes import TensorShape, broadcast

_BINARY = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "true_divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
}
_COMPARE = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}

# NumPy deprecates `out` by position for these.
_KEYWORD_OUT = ("maximum", "minimum")


class Elementwise:
    """Base of ops whose output element depends on the inputs' elements at the same place only."""

    expression: str = ""
    elementwise = True
    writes_out = True

    @property
    def overwrites(self) -> tuple[int, ...]:
        """One ufunc reads each element before it writes it; of several, the first write could destroy a
        later read."""
        if not self.expression:
            return ()
        tree = ast.parse(self.expression, mode="eval").body
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
        calls = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call)]  # type: ignore[attr-defined]
        steps = sum(isinstance(n, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)) for n in ast.walk(tree))
        return tuple(range(len(dict.fromkeys(n for n in names if n not in calls)))) if steps == 1 else ()

    def shape(self, s: ShapeContext, *inputs: TensorShape) -> TensorShape:
        made = inputs[0]
        for other in inputs[1:]:
            made = broadcast(made, other)
        return made

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        op_def = k.node.op_def if k.node is not None else None
        names = [a.name for a in op_def.inputs] if op_def else self._names(k)
        return compile_expression(self.expression_of(k.attrs), tuple(names), k.xp, k.input_dtypes[0].np)

    def expression_of(self, attrs: dict[str, Any]) -> str:
        """The expression under `attrs`: for ops whose attrs are numbers in it."""
        return self.expression

    def _names(self, k: KernelContext) -> list[str]:
        from graphrt.core.registry import OPS

        return [a.name for a in OPS[k.type].inputs]


_compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}


def compile_expression(
    expression: str, names: tuple[str, ...], xp: Any, dtype: Any = None
) -> Callable[..., Any]:
    """A function (*inputs, out) of the expression over the array module `xp`; one ufunc stays the ufunc
    itself.

    Args:
      dtype: the inputs' NumPy dtype, which the expression's numbers take; None leaves them Python's.
    """
    key = (expression, names, xp, dtype)
    made = _compiled.get(key)
    if made is None:
        made = _compiled[key] = _compile(expression, names, xp, dtype)
    return made


def _compile(expression: str, names: tuple[str, ...], xp: Any, dtype: Any) -> Callable[..., Any]:
    tree = ast.parse(expression, mode="eval").body
    single = _single_ufunc(tree, names, xp)
    if single is not None:
        return single
    scope: dict[str, Any] = {"xp": xp, "where": lambda c, a, b, out: _where(xp, c, a, b, out)}
    if dtype is not None:
        tree = _Numbers(scope, xp, dtype).visit(tree)
    source = f"def kernel({', '.join(names)}, out):\n    return {_call(tree, 'out')}\n"
    exec(compile(source, f"<expression {expression}>", "exec"), scope)
    return scope["kernel"]


class _Numbers(ast.NodeTransformer):
    """Numbers become names of NumPy's: Python's would make bfloat16 float32, and cost a conversion a call."""

    def __init__(self, scope: dict[str, Any], xp: Any, dtype: Any) -> None:
        self.scope, self.xp, self.dtype = scope, xp, dtype

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._named(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._named(-node.operand.value)  # type: ignore[operator]
        return self.generic_visit(node)

    def _named(self, number: Any) -> ast.AST:
        name = f"number_{len(self.scope)}"
        array = np.asarray(number, self.dtype)
        # A GPU's array would belong to one device; its module takes NumPy's scalars on any.
        self.scope[name] = array if self.xp is np else array[()]
        return ast.Name(name, ast.Load())


def _parts(node: ast.AST) -> tuple[str, list[ast.AST]] | None:
    """The ufunc a node stands for and its arguments; None for names and numbers."""
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Compare):
        return _COMPARE[type(node.ops[0])], [node.left, node.comparators[0]]
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.operand, ast.Constant):
            return None
        return "negative", [node.operand]
    if isinstance(node, ast.Call):
        return node.func.id, list(node.args)  # type: ignore[attr-defined]
    return None


def _single_ufunc(tree: ast.AST, names: tuple[str, ...], xp: Any) -> Any:
    parts = _parts(tree)
    if parts is None or parts[0] == "where":
        return None
    if [a.id if isinstance(a, ast.Name) else None for a in parts[1]] != list(names):
        return None
    ufunc = getattr(xp, parts[0])
    if parts[0] in _KEYWORD_OUT:
        return lambda x, y, out: ufunc(x, y, out=out)
    return ufunc


def _call(node: ast.AST, out: str) -> str:
    parts = _parts(node)
    if parts is None:
        return ast.unparse(node)
    name, args = parts
    inner = ", ".join(_call(a, "None") for a in args)
    if name == "where":
        return f"where({inner}, {out})"
    if out == "None":
        return f"xp.{name}({inner})"
    return f"xp.{name}({inner}, {'out=' if name in _KEYWORD_OUT else ''}{out})"


def _where(xp: Any, condition: Any, a: Any, b: Any, out: Any) -> Any:
    made = xp.where(condition, a, b)
    if out is None:
        return made
    out[...] = made
    return out
