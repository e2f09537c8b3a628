"""Variables that begin with values of a checkpoint: init_from_checkpoint and warm_start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphrt.core import raw
from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph_keys import GraphKeys
from graphrt.train.checkpoint_reader import load_checkpoint
from graphrt.train.checkpoint_state import checkpoint_filename
from graphrt.train.saver_nodes import names_to_saveables, saveable_objects
from graphrt.variables.partitioned_variable import PartitionedVariable
from graphrt.variables.variable import Variable
from graphrt.variables.variable_store import default_store


def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Any) -> None:
    """Make the initializers of variables read a checkpoint. Call it before the initializers are grouped.

    Args:
      ckpt_dir_or_file: a checkpoint's prefix, or a folder, whose latest is taken.
      assignment_map: a dict or pairs. 'name in the checkpoint' to a variable, the name of one, or the list
        of a partitioned one's parts; 'scope/' to 'scope/': all variables under a scope; '/' is the root.
    Raises:
      ValueError: a variable is not in the graph or not in the checkpoint, or has another shape there.
    """
    prefix = checkpoint_filename(ckpt_dir_or_file)
    shapes = load_checkpoint(prefix).get_variable_to_shape_map()
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    known = default_store().variables
    for stored, target in sorted(pairs, key=lambda pair: pair[0]):
        variable = _as_variable(target, known)
        if variable is not None:
            if stored not in shapes:
                raise ValueError(f"Tensor {stored} is not found in {ckpt_dir_or_file} checkpoint {shapes}")
            _check_shape(variable, stored, shapes[stored])
            _read_from(variable, prefix, stored)
            continue
        if not isinstance(target, str):
            raise ValueError(f"'{stored}' cannot go to {target!r}: it is no variable, list of parts, or name")
        scope = target.rpartition("/")[0]
        if not stored.endswith("/"):
            raise ValueError(
                f"Assignment map with scope only name {scope} should map to scope only {stored}. Should be "
                "'scope/': 'other_scope/'."
            )
        names = {re.sub(r"/part_\d+$", "", n) for n in known if not scope or n.startswith(scope + "/")}
        for name in sorted(names):
            within = name[len(scope) + 1 :] if scope else name
            full = within if stored == "/" else stored + within
            if full not in shapes:
                raise ValueError(
                    f"Tensor {full} ({within} in {stored}) is not found in {ckpt_dir_or_file} checkpoint"
                )
            found = _as_variable(name, known)
            _check_shape(found, full, shapes[full])
            _read_from(found, prefix, full)


def _as_variable(target: Any, known: dict[str, Any]) -> Any:
    """A variable or a list of parts; None where it is not one and names none."""
    if isinstance(target, PartitionedVariable):
        return list(target)
    if (
        isinstance(target, Variable)
        or isinstance(target, (list, tuple))
        and all(isinstance(v, Variable) for v in target)
    ):
        return target
    if not isinstance(target, str):
        return None
    if target in known:
        return known[target]
    parts = []
    while f"{target}/part_{len(parts)}" in known:
        parts.append(known[f"{target}/part_{len(parts)}"])
    return parts or None


def _check_shape(variable: Any, stored: str, shape: list[int]) -> None:
    if isinstance(variable, Variable) and not variable.get_shape().is_compatible_with(shape):
        raise ValueError(
            f"Shape of variable {variable.name} ({variable.get_shape()}) doesn't match with shape of tensor "
            f"{stored} ({shape}) from checkpoint reader."
        )


def _read_from(variable: Any, prefix: str, stored: str) -> None:
    """Replace the initializer of a variable, or of each of its parts."""
    if isinstance(variable, Variable):
        _set_initializer(variable, prefix, stored, "")
        return
    full_name = variable[0]._get_save_slice_info().full_name
    for part in variable:
        info = part._get_save_slice_info()
        if info.full_name != full_name:
            raise ValueError(f"Slices must all be from the same tensor: {full_name} != {info.full_name}")
        _set_initializer(part, prefix, stored, info.spec)


def _set_initializer(variable: Any, prefix: str, stored: str, spec: str) -> None:
    graph = get_default_graph()
    # Reading stays on a CPU; the variable may be elsewhere.
    with graph.device(variable.device), graph.device("/cpu:0"):
        restored = raw.RestoreV2(
            prefix, [stored], [spec], dtypes=[variable.dtype.base_dtype], name="checkpoint_initializer"
        )[0]
        (saveable,) = saveable_objects(names_to_saveables([variable]))
    variable._initializer_op = getattr(made := saveable.restore([restored], None), "op", made)
    restored.set_shape(variable.shape)
    variable._initial_value = restored


def warm_start(
    ckpt_to_initialize_from: Any,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Any = None,
    var_name_to_prev_var_name: dict[str, str] | None = None,
) -> None:
    """Begin with a checkpoint's values where variables match.

    Args:
      ckpt_to_initialize_from: a checkpoint's prefix, or a folder.
      vars_to_warm_start: a regular expression of trainable variables' names; a list of those, of all
        variables; a list of variables; or None, for none.
      var_name_to_vocab_info: not supported: vocabularies are not remapped.
      var_name_to_prev_var_name: names in the checkpoint, where they differ.
    Raises:
      NotImplementedError: var_name_to_vocab_info is given.
      ValueError: no variable matches, or one is not in the checkpoint.
    """
    if var_name_to_vocab_info:
        raise NotImplementedError(
            "warm_start: vocabularies (var_name_to_vocab_info) are not remapped: use "
            "init_from_checkpoint for variables whose rows stay the same"
        )
    previous = dict(var_name_to_prev_var_name or {})
    graph = get_default_graph()
    if vars_to_warm_start is None:
        found: list[Any] = []
    elif isinstance(vars_to_warm_start, str):
        found = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, vars_to_warm_start)
    elif all(isinstance(v, str) for v in vars_to_warm_start):
        found = [
            v
            for pattern in vars_to_warm_start
            for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, pattern)
        ]
    else:
        found = list(vars_to_warm_start)
    if not found and vars_to_warm_start is not None:
        raise ValueError(f"warm_start: no variable matches {vars_to_warm_start!r}")
    grouped: dict[str, Any] = {}
    for variable in found:
        info = variable._get_save_slice_info()
        if info is None:
            grouped[variable.op.name] = variable
        else:
            grouped.setdefault(info.full_name, []).append(variable)
    unused = sorted(set(previous) - set(grouped))
    if unused:
        raise ValueError(
            f"warm_start: var_name_to_prev_var_name has {', '.join(unused)}, which are not warm-started"
        )
    init_from_checkpoint(
        ckpt_to_initialize_from, [(previous.get(name, name), v) for name, v in grouped.items()]
    )
