"""Variable scopes: names and defaults for the variables that get_variable makes or shares inside.

A VariableScope is what a scope says (name, reuse, initializer, …); `variable_scope` opens one, with a name
scope of the same name beside it. Each thread has its own open scopes of a graph.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from graphrt.core.convert import convert_to_tensor
from graphrt.core.default_graph import get_collection, get_default_graph, graph_of, name_scope
from graphrt.core.dtypes import float32
from graphrt.core.graph_keys import GraphKeys
from graphrt.variables.lifting import outside_functions
from graphrt.variables.variable import VariableAggregation, VariableSynchronization
from graphrt.variables.variable_store import AUTO_REUSE, VariableStore, default_store

_INHERITED = ("initializer", "regularizer", "caching_device", "partitioner", "dtype", "use_resource")


class VariableScope:
    """What an open variable scope says; get_variable asks it for what it was not told.

    Attributes:
      name: the prefix of variables' names, without a slash at its end.
      original_name_scope: the name scope that was opened with it, with its slash.
      reuse: True (variables must exist), AUTO_REUSE (made where they do not), False or None (must not exist).
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource, constraint:
        defaults.
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self._name, self._reuse, self._name_scope = name, reuse, name_scope
        self._initializer, self._regularizer, self._caching_device = initializer, regularizer, caching_device
        self._partitioner, self._custom_getter, self._dtype = partitioner, custom_getter, dtype
        self._use_resource, self._constraint = use_resource, constraint

    name = property(lambda self: self._name)
    original_name_scope = property(lambda self: self._name_scope)
    reuse = property(lambda self: self._reuse)
    initializer = property(lambda self: self._initializer)
    regularizer = property(lambda self: self._regularizer)
    caching_device = property(lambda self: self._caching_device)
    partitioner = property(lambda self: self._partitioner)
    custom_getter = property(lambda self: self._custom_getter)
    dtype = property(lambda self: self._dtype)
    use_resource = property(lambda self: self._use_resource)
    constraint = property(lambda self: self._constraint)

    def reuse_variables(self) -> None:
        """From here on variables must exist: they are shared."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        self._initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        self._custom_getter = custom_getter

    def set_dtype(self, dtype: Any) -> None:
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        self._use_resource = use_resource

    def get_collection(self, name: Any) -> list[Any]:
        """What of the collection stands under this scope."""
        return get_collection(name, self._name + "/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def _or_own(self, value: Any, what: str) -> Any:
        return getattr(self, "_" + what) if value is None else value

    def get_variable(
        self,
        var_store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        """The variable called `name` under this scope; see the public get_variable."""
        with name_scope(""):
            if dtype is not None and initializer is not None and not callable(initializer):
                given = convert_to_tensor(initializer).dtype.base_dtype
                if given != dtype:
                    raise ValueError(
                        f"Initializer type '{given!r}' and explicit dtype '{dtype!r}' don't match."
                    )
            return var_store.get_variable(
                f"{self._name}/{name}" if self._name else name,
                shape=shape,
                dtype=self._or_own(dtype, "dtype"),
                initializer=self._or_own(initializer, "initializer"),
                regularizer=self._or_own(regularizer, "regularizer"),
                reuse=self._or_own(reuse, "reuse"),
                trainable=trainable,
                collections=collections,
                caching_device=self._or_own(caching_device, "caching_device"),
                partitioner=self._or_own(partitioner, "partitioner"),
                validate_shape=validate_shape,
                use_resource=self._or_own(use_resource, "use_resource"),
                custom_getter=self._or_own(custom_getter, "custom_getter"),
                constraint=self._or_own(constraint, "constraint"),
                synchronization=synchronization,
                aggregation=aggregation,
            )

    def _get_partitioned_variable(
        self,
        var_store: VariableStore,
        name: str | None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        **options: Any,
    ) -> Any:
        if self._custom_getter is not None:
            raise ValueError(
                "Private access to _get_partitioned_variable is not allowed when a custom getter is set.  "
                f"Current custom getter: {self._custom_getter}.  It is likely that you're using "
                "create_partitioned_variables.  If so, consider instead using get_variable with a non-empty "
                "partitioner parameter instead."
            )
        if partitioner is None and self._partitioner is None:
            raise ValueError("No partitioner was specified")
        with name_scope(""):
            return var_store.get_partitioned(
                "/".join(filter(None, (self._name, name))),
                self._or_own(partitioner, "partitioner"),
                dtype=self._or_own(dtype, "dtype"),
                initializer=self._or_own(initializer, "initializer"),
                regularizer=self._or_own(regularizer, "regularizer"),
                reuse=self._reuse,
                caching_device=self._or_own(caching_device, "caching_device"),
                use_resource=self._or_own(use_resource, "use_resource"),
                constraint=self._or_own(constraint, "constraint"),
                **options,
            )


class _OpenScopes(threading.local):
    """A thread's open variable scope of one graph, and how often each scope name was opened (for default
    names)."""

    def __init__(self) -> None:
        self.current = VariableScope(False)
        self.counts: dict[str, int] = {}

    def opened(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def close_below(self, name: str) -> None:
        """What was opened below a scope starts over: the next scope there takes the first default name
        again."""
        for opened in self.counts:
            if not name or opened.startswith(name + "/"):
                self.counts[opened] = 0


def _open_scopes() -> _OpenScopes:
    kept = outside_functions(get_default_graph()).get_collection_ref(GraphKeys._VARSCOPESTORE_KEY)
    if not kept:
        kept.append(_OpenScopes())
    return kept[0]


def get_variable_scope() -> VariableScope:
    """The open variable scope."""
    return _open_scopes().current


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """The variable called `name` under the open variable scope: made, or shared where the scope's reuse says
    so.

    Args:
      shape: its shape; not where `initializer` is a value.
      dtype: float32 by default (the scope's).
      initializer: function (shape, dtype) to a tensor, or a value. By default the scope's, then Glorot's
        uniform for floating types and zeros for others.
      regularizer: function from the variable to a loss or None; the loss goes to
        GraphKeys.REGULARIZATION_LOSSES.
      trainable, collections, caching_device, validate_shape, use_resource, constraint, synchronization,
        aggregation: see Variable.
      partitioner: function (shape=, dtype=) to the number of parts along each axis: gives a
        PartitionedVariable.
      custom_getter: function (getter, name, *args, **kwargs) that is called in place of the getter.
    Raises:
      ValueError: it exists and the scope does not reuse; it does not and the scope reuses; it has another
        shape or dtype.
    """
    return get_variable_scope().get_variable(
        default_store(),
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = False,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """get_variable, of a local variable: in GraphKeys.LOCAL_VARIABLES, and not trained."""
    return get_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=False,
        collections=[*(collections or ()), GraphKeys.LOCAL_VARIABLES],
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def no_regularizer(_: Any) -> None:
    """A regularizer that adds no loss: it lifts the scope's."""
    return None


class PureVariableScope:
    """A variable scope without a name scope of its own."""

    def __init__(
        self,
        name_or_scope: str | VariableScope,
        reuse: Any = None,
        custom_getter: Any = None,
        constraint: Any = None,
        old_name_scope: str | None = None,
        **defaults: Any,
    ) -> None:
        self._name_or_scope, self._reuse, self._custom_getter = name_or_scope, reuse, custom_getter
        self._constraint, self._old_name_scope, self._defaults = constraint, old_name_scope, defaults
        self._entered: list[tuple[_OpenScopes, VariableScope, VariableScope, dict[str, int] | None]] = []
        # A scope that is re-entered is copied once, so that what is set on the copy stays.
        self._copy = (
            self._derived(
                name_or_scope, name_or_scope.name, name_or_scope._name_scope, reuse or name_or_scope.reuse
            )
            if isinstance(name_or_scope, VariableScope)
            else None
        )

    def _derived(self, base: VariableScope, name: str, scope: str, reuse: Any) -> VariableScope:
        given = {key: base._or_own(self._defaults.get(key), key) for key in _INHERITED}
        getter = base.custom_getter
        if self._custom_getter is not None:
            getter = _nested_getter(self._custom_getter, getter)
        return VariableScope(
            reuse, name=name, name_scope=scope, custom_getter=getter, constraint=self._constraint, **given
        )

    def __enter__(self) -> VariableScope:
        open_scopes = _open_scopes()
        old = open_scopes.current
        counts = None
        if self._copy is not None:
            scope = self._copy
            open_scopes.opened(scope.name)
            counts = dict(open_scopes.counts)
        else:
            wanted: Any = self._name_or_scope
            name = f"{old.name}/{wanted}" if old.name else wanted
            self._reuse = self._reuse or old.reuse
            scope = self._derived(
                old, name, wanted if self._old_name_scope is None else self._old_name_scope, self._reuse
            )
            open_scopes.opened(name)
        open_scopes.current = scope
        self._entered.append((open_scopes, old, scope, counts))
        return scope

    def __exit__(self, *error: Any) -> None:
        open_scopes, old, scope, counts = self._entered.pop()
        if open_scopes.current is not scope:
            raise RuntimeError("Improper nesting of variable_scope.")
        if counts is not None:
            open_scopes.counts = counts
        else:
            open_scopes.close_below(scope.name)
        open_scopes.current = old


def _nested_getter(custom_getter: Any, outer: Any) -> Any:
    if outer is None:
        return custom_getter
    return lambda getter, *args, **kwargs: custom_getter(functools.partial(outer, getter), *args, **kwargs)


def unique_scope_name(prefix: str) -> str:
    """`prefix`, with _1, _2, … where a scope of that name was opened here before."""
    open_scopes = _open_scopes()
    outer = open_scopes.current.name
    full = f"{outer}/{prefix}" if outer else prefix
    if not open_scopes.counts.get(full):
        return prefix
    i = 1
    while open_scopes.counts.get(f"{full}_{i}"):
        i += 1
    return f"{prefix}_{i}"


class variable_scope:  # noqa: N801  a function to its users
    """Open a variable scope, and a name scope of the same name: `with tf.variable_scope("layer") as scope:`.

    Args:
      name_or_scope: a name, or a VariableScope to enter again; None takes `default_name`, made unique.
      values: tensors whose graph is the default inside.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource, constraint:
        defaults for variables inside; those of the outer scope where None.
      reuse: True, tf.AUTO_REUSE, or None and False, which take the outer scope's.
      auxiliary_name_scope: False opens no name scope.
    Raises:
      ValueError, TypeError: `reuse` without a name, or arguments of other kinds.
    """

    def __init__(
        self,
        name_or_scope: Any,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse not in (True, False, None) and reuse is not AUTO_REUSE:
            raise ValueError("The reuse parameter must be True or False or None.")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(
                f"The auxiliary_name_scope must be `True` or `False`, while get {auxiliary_name_scope}"
            )
        self._name_or_scope, self._default_name = name_or_scope, default_name
        self._reuse = reuse or None
        self._has_name_scope = auxiliary_name_scope
        self._options = {
            "initializer": initializer,
            "regularizer": regularizer,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "custom_getter": custom_getter,
            "dtype": dtype,
            "use_resource": use_resource,
            "constraint": constraint,
        }
        self._graph = graph_of(values or ()) or get_default_graph()
        self._name_scope: name_scope | None = None
        self._pure: PureVariableScope | None = None
        self._open: list[ExitStack] = []

    def __enter__(self) -> VariableScope:
        with ExitStack() as stack:
            if not get_default_graph().building_function:
                stack.enter_context(self._graph.as_default())
            if self._pure is None:
                scope = self._enter_first(stack)
            else:
                if self._name_scope is not None:
                    stack.enter_context(self._name_scope)
                scope = stack.enter_context(self._pure)
            self._open.append(stack.pop_all())
            return scope

    def _enter_first(self, stack: ExitStack) -> VariableScope:
        given, current = self._name_or_scope, None
        if not self._has_name_scope:
            name = get_default_graph().get_name_scope()
            current = name_scope(name + "/" if name else "")
        if given is None:
            if self._reuse:
                raise ValueError("reuse=True cannot be used without a name_or_scope")
            self._name_scope = current or name_scope(self._default_name)
            opened = stack.enter_context(self._name_scope)
            self._pure = PureVariableScope(
                unique_scope_name(self._default_name or ""), old_name_scope=opened, **self._options
            )
            return stack.enter_context(self._pure)
        if not isinstance(given, (VariableScope, str)):
            raise TypeError("VariableScope: name_or_scope must be a string or VariableScope.")
        name = given if isinstance(given, str) else given.name.rpartition("/")[2]
        old_name_scope = None
        if name or current:
            self._name_scope = current or name_scope(name)
            opened = stack.enter_context(self._name_scope)
            old_name_scope = opened if isinstance(given, str) else given.original_name_scope
        self._pure = PureVariableScope(
            given, reuse=self._reuse, old_name_scope=old_name_scope, **self._options
        )
        return stack.enter_context(self._pure)

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)


@contextmanager
def variable_op_scope(
    values: Any,
    name_or_scope: Any,
    default_name: str | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
) -> Iterator[VariableScope]:
    """variable_scope with `values` first, as older programs call it."""
    warnings.warn(
        "tf.variable_op_scope(values, name, default_name) is deprecated, use tf.variable_scope(name, "
        "default_name, values)",
        DeprecationWarning,
        stacklevel=3,
    )
    with variable_scope(
        name_or_scope,
        default_name,
        values,
        initializer,
        regularizer,
        caching_device,
        partitioner,
        custom_getter,
        reuse,
        dtype,
        use_resource,
        constraint,
    ) as scope:
        yield scope
