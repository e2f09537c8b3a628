"""tf.case and tf.switch_case: several branches; smart_cond: a conditional that may be decided while the graph
is built."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphrt.control_flow.assertion import Assert
from graphrt.control_flow.cond import cond
from graphrt.core import raw
from graphrt.core.constant_value import constant_value
from graphrt.core.default_graph import control_dependencies, name_scope
from graphrt.core.dtypes import bool_, int32
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor

Branch = Callable[[], Any]


def case(
    pred_fn_pairs: Any,
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """What the function of the first true predicate returns; that of `default` where none is true.

    Args:
      pred_fn_pairs: a list of (bool scalar tensor, function), or a dict, which is taken in the order of the
        predicates' names.
      default: a function; without it a step in which no predicate is true fails.
      exclusive: a step in which several predicates are true fails.
      strict: as for tf.cond.
    Raises:
      TypeError: the pairs are not that, or a function is not callable.
    """
    return _case(cond, pred_fn_pairs, default, exclusive, name, False, strict=strict)


def smart_case(
    pred_fn_pairs: Any, default: Branch | None = None, exclusive: bool = False, name: str = "smart_case"
) -> Any:
    """`case` with predicates that may be Python bools; branches that are decided now are called now, or left
    out."""
    return _case(smart_cond, pred_fn_pairs, default, exclusive, name, True)


def _case(
    cond_fn: Callable[..., Any],
    pairs: Any,
    default: Branch | None,
    exclusive: bool,
    name: str,
    python_preds: bool,
    **options: Any,
) -> Any:
    predicates, actions = _checked_pairs(pairs, python_preds)
    with name_scope(name, "case", [p for p in predicates if isinstance(p, Tensor)]):
        if default is None:
            default = _checked_default(predicates, actions[-1])
            tests = list(zip(predicates, actions))[:-1]
        else:
            tests = list(zip(predicates, actions))
        chosen: Branch = default
        for predicate, action in reversed(tests):
            chosen = partial(cond_fn, predicate, true_fn=action, false_fn=chosen, **options)
        if not exclusive or not tests:
            return chosen()
        with control_dependencies([_at_most(1, [p for p, _ in tests], "Input error: exclusive=True")]):
            return chosen()


def _checked_pairs(pairs: Any, python_preds: bool) -> tuple[list[Any], list[Branch]]:
    if not isinstance(pairs, (list, tuple, dict)):
        raise TypeError(f"'pred_fn_pairs' must be a list, tuple, or dict. Received: {type(pairs)}")
    if isinstance(pairs, OrderedDict):
        pairs = list(pairs.items())
    elif isinstance(pairs, dict):
        pairs = sorted(pairs.items(), key=lambda item: item[0].name)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"Each entry in 'pred_fn_pairs' must be a 2-tuple. Received {pair}.")
        predicate, action = pair
        if isinstance(predicate, Tensor):
            if predicate.dtype.base_dtype is not bool_:
                raise TypeError(f"pred must be Tensor of type bool: {predicate.name}")
        elif not python_preds:
            raise TypeError(f"pred must be a Tensor, got: {predicate}")
        elif not isinstance(predicate, bool):
            raise TypeError(f"pred must be a Tensor or bool, got: {predicate}")
        if not callable(action):
            raise TypeError(f"fn for pred {getattr(predicate, 'name', predicate)} must be callable.")
    if not pairs:
        raise ValueError("'pred_fn_pairs' must have at least one pair of a predicate and a function")
    return [p for p, _ in pairs], [a for _, a in pairs]


def _at_most(n: int, predicates: list[Any], message: str) -> Operation:
    """An operation that fails where more than `n` of the predicates are true."""
    packed = raw.Pack(predicates, axis=0, name="preds_c")
    true_count = raw.Sum(
        raw.Cast(packed, DstT=int32),
        raw.Const(value=np.zeros(1, np.int32), dtype=int32),
        name="num_true_conds",
    )
    limit = raw.Const(value=np.array(n, np.int32), dtype=int32, name="n_true_conds")
    names = ", ".join(getattr(p, "name", "?") for p in predicates)
    return Assert(
        raw.LessEqual(true_count, limit),
        [f"{message}: more than {n} conditions ({names}) evaluated as True:", packed],
        summarize=len(predicates),
    )


def _checked_default(predicates: list[Any], action: Branch) -> Branch:
    """The last action as the default, with checks that it is its turn."""
    last, others = predicates[-1], predicates[:-1]

    def default() -> Any:
        failure = [
            "Input error: None of conditions evaluated as True:",
            raw.Pack(predicates, axis=0, name="preds_c"),
        ]
        unexpected = (
            f"Implementation error: selected default action #{len(others)} was called, but some of other "
            "predicates are True: "
        )
        checks = [_at_most(0, others, unexpected)] if others else []
        with control_dependencies([*checks, Assert(last, failure)]):
            return action()

    return default


def switch_case(
    branch_index: Any, branch_fns: Any, default: Branch | None = None, name: str = "switch_case"
) -> Any:
    """What function number `branch_index` returns; that of `default` (or of the last function) where there is
    none such.

    Args:
      branch_index: an int32 scalar tensor.
      branch_fns: a list of functions, or of (int, function), or a dict; the ints are 0 to n - 1.
    Raises:
      TypeError, ValueError: they are not that.
    """
    actions = _checked_branches(branch_fns, default, branch_index)
    with name_scope(name, "case", [branch_index]):
        from graphrt.control_flow.functional import indexed_case

        return indexed_case(branch_index, actions)


def _checked_branches(branch_fns: Any, default: Branch | None, branch_index: Any) -> list[Branch]:
    if not isinstance(branch_index, Tensor):
        raise TypeError(f"'branch_index' must be a Tensor, got {type(branch_index)}")
    if not branch_index.dtype.is_integer:
        raise TypeError(f"'branch_index' must be an integer Tensor, got {branch_index.dtype!r}")
    if not branch_fns:
        raise ValueError("Must provide at least one item in 'branch_fns'")
    if not isinstance(branch_fns, (list, tuple, dict)):
        raise TypeError("'branch_fns' must be a list, tuple, or dict")
    pairs: list[Any] = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    if all(callable(f) for f in pairs):
        pairs = list(enumerate(pairs))
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"Each entry in 'branch_fns' must be a 2-tuple. Received {pair}.")
        key, function = pair
        if not isinstance(key, int):
            raise TypeError(f"key must be a Python `int`, got {type(key)}")
        if not callable(function):
            raise TypeError(f"fn for key {key} must be callable.")
    by_key = dict(pairs)
    if sorted(by_key) != list(range(len(pairs))):
        keys = ",".join(str(k) for k in sorted(k for k, _ in pairs))
        raise ValueError(
            f"branch indices (keys) must form contiguous range of [0 to {len(pairs)}) but found {{{keys}}}"
        )
    return [by_key[i] for i in range(len(pairs))] + ([] if default is None else [default])


def smart_cond(
    pred: Any, true_fn: Branch | None = None, false_fn: Branch | None = None, name: str | None = None
) -> Any:
    """tf.cond, but where `pred` is a Python bool or a constant only the function of its side is called.

    Raises:
      TypeError: a function is not callable, or `pred` is neither a tensor nor a bool.
    """
    if not callable(true_fn):
        raise TypeError(f"Argument `true_fn` must be callable. Received {true_fn}")
    if not callable(false_fn):
        raise TypeError(f"Argument `false_fn` must be callable. Received {false_fn}")
    known = smart_constant_value(pred)
    if known is None:
        return cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)
    return true_fn() if known else false_fn()


def smart_constant_value(pred: Any) -> bool | None:
    """The bool that `pred` (a tensor, a bool, 0 or 1) is in every step; None where steps decide.

    Raises:
      TypeError: `pred` is something else.
    """
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        return None if value is None else bool(value)
    if isinstance(pred, int) and pred in (0, 1):
        return bool(pred)
    raise TypeError(
        f"Argument `pred` must be a Tensor, or a Python bool, or 1 or 0. Received: pred={pred} of type "
        f"{type(pred).__name__}"
    )
