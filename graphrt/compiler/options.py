"""CompileOptions: what a session's configuration means to the compiler."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# RewriterConfig.Toggle
_OFF = 2
_LEVEL_0 = -1
DEFAULT_FOLDED_BYTES = 10 << 20


def _verify_by_default() -> bool:
    return os.environ.get("GRAPHRT_VERIFY", "") not in ("", "0")


@dataclass
class CompileOptions:
    """How to compile the steps of one session.

    Attributes:
      client_device: full name of the device where feeds enter and fetches leave; its task is the default one.
      soft_placement: a device type or index that an op has no kernel for gives way.
      fold, simplify, share: the optimising passes that run.
      max_folded_bytes: larger results of constant folding are not kept.
      by_task: cut one partition a task (a worker cuts it again by device), not one a device.
      name_suffix: before the number in the names of nodes that `partition` makes.
      names: numbers for those names and for tensor names, unique in the session; shared by all its steps.
      pinned: device of each stateful node that an earlier step of the session placed; `place` adds to it.
      verify: check the invariants after every pass.
    """

    client_device: str
    soft_placement: bool = False
    fold: bool = True
    simplify: bool = True
    share: bool = True
    max_folded_bytes: int = DEFAULT_FOLDED_BYTES
    by_task: bool = False
    name_suffix: str = "_S"
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    pinned: dict[str, str] = field(default_factory=dict)
    verify: bool = field(default_factory=_verify_by_default)

    @classmethod
    def from_config(cls, config: Any, client_device: str, **others: Any) -> CompileOptions:
        """The options of a ConfigProto (None is the default one).

        Args:
          others: fields of this class that the configuration does not decide.
        """
        made = cls(client_device, **others)
        if config is None:
            return made
        made.soft_placement = config.allow_soft_placement
        optimizer, rewrite = config.graph_options.optimizer_options, config.graph_options.rewrite_options
        if optimizer.opt_level == _LEVEL_0 or rewrite.disable_meta_optimizer:
            made.fold = made.simplify = made.share = False
        made.fold &= rewrite.constant_folding != _OFF
        made.simplify &= rewrite.arithmetic_optimization != _OFF
        made.share &= rewrite.common_subgraph_elimination != _OFF
        if optimizer.max_folded_constant_in_bytes > 0:
            made.max_folded_bytes = optimizer.max_folded_constant_in_bytes
        return made
