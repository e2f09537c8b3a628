"""make_template: a function that makes its variables at the first call and shares them at the others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from graphrt.core.default_graph import get_collection, get_collection_ref
from graphrt.core.errors import source_line
from graphrt.core.graph_keys import GraphKeys
from graphrt.core.operation import user_location
from graphrt.variables.variable_scope import (
    PureVariableScope,
    VariableScope,
    unique_scope_name,
    variable_scope,
)

_log = logging.getLogger("graphrt")


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:
    """A Template of `func_`, with `kwargs` bound.

    Args:
      name_: name of its variable scope, made unique.
      create_scope_now_: choose the scope's name here, not at the first call.
      unique_name_: a name that is taken as it is.
      custom_getter_: see get_variable.
    Raises:
      ValueError: name_ is None.
    """
    return Template(
        name_,
        functools.partial(func_, **kwargs) if kwargs else func_,
        create_scope_now_,
        unique_name_,
        custom_getter_,
    )


class Template:
    """A function whose get_variable calls share their variables among its calls; a trainable variable made by
    a later call is an error. What make_template returns.

    Attributes:
      name: the name asked for.
      func: the function.
      variable_scope: its VariableScope, once it has one.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        create_scope_now: bool = False,
        unique_name: str | None = None,
        custom_getter: Any = None,
    ) -> None:
        if name is None:
            raise ValueError("name cannot be None.")
        self.name, self.func = name, func
        self._unique_name, self._custom_getter = unique_name, custom_getter
        self._location = user_location(2)
        self.variable_scope: VariableScope | None = None
        self._was_called = self._has_variables = False
        if create_scope_now:
            with PureVariableScope(
                unique_name or unique_scope_name(name), custom_getter=custom_getter
            ) as scope:
                self.variable_scope = scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.variable_scope is not None:
            with variable_scope(self.variable_scope, reuse=self._was_called):
                return self._call(args, kwargs)
        with variable_scope(self._unique_name, self.name, custom_getter=self._custom_getter) as scope:
            self.variable_scope = scope
            return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> Any:
        try:
            if self._has_variables:
                return self._call_again(args, kwargs)
            if self._was_called:  # the first call is still running: the function calls its own template
                return self.func(*args, **kwargs)
            self._was_called = True
            try:
                result = self.func(*args, **kwargs)
            except BaseException:
                self._was_called = False
                raise
            self._has_variables = True
            return result
        except Exception as error:
            error.add_note(
                f"in the template '{self.name}', originally defined at: {source_line(self._location)}"
            )
            raise

    def _call_again(self, args: Any, kwargs: Any) -> Any:
        trainable = get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        all_global = get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
        n_trainable, n_global = len(trainable), len(all_global)
        result = self.func(*args, **kwargs)
        if len(trainable) != n_trainable:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps you used "
                f"tf.Variable when you meant tf.get_variable: {trainable[n_trainable:]}"
            )
        if len(all_global) != n_global:
            _log.info(
                "New variables created when calling a template after the first time, perhaps you used "
                "tf.Variable when you meant tf.get_variable: %s",
                all_global[n_global:],
            )
        return result

    @property
    def variable_scope_name(self) -> str | None:
        """The scope's name, with a slash at its end."""
        if self.variable_scope is None:
            return None
        name = self.variable_scope.name
        return name if not name or name.endswith("/") else name + "/"

    var_scope = property(lambda self: self.variable_scope)

    def _of(self, collection: str) -> list[Any]:
        return get_collection(collection, self.variable_scope_name) if self._has_variables else []

    @property
    def variables(self) -> list[Any]:
        return self.global_variables + self.local_variables

    @property
    def trainable_variables(self) -> list[Any]:
        return self._of(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def non_trainable_variables(self) -> list[Any]:
        trainable = set(self.trainable_variables)
        return [v for v in self.global_variables if v not in trainable]

    @property
    def global_variables(self) -> list[Any]:
        return self._of(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        return self._of(GraphKeys.LOCAL_VARIABLES)

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables
