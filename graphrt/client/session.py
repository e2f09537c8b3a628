"""Session: runs parts of a graph.

`run` turns fetches and feeds into a signature once, keeps what was compiled for it, and from then on checks
the feeds and calls. The fast path of a repeated call is a dictionary look-up, a check a feed, and the plan.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from graphrt.client.feeds import Feeder, fed_tensor, flatten_feeds
from graphrt.client.fetches import Fetches, as_fetched
from graphrt.client.options import SessionOptions, read_config, run_timeout, wants_trace
from graphrt.compiler.step_graph import Signature
from graphrt.core.default_graph import get_default_graph
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.graph import Graph
from graphrt.core.operation import Operation
from graphrt.core.tensor import Tensor, set_eval_hook


class _Prepared:
    """What one form of `run` needs: the executable, feeders in the order of the caller's feeds, and the
    result's form."""

    __slots__ = ("executable", "feeders", "fetches", "single", "edits", "signature")

    def __init__(self, executable: Any, feeders: list[Feeder], fetches: Fetches, edits: int) -> None:
        self.executable, self.feeders, self.fetches, self.edits = executable, feeders, fetches, edits


class BaseSession:
    """See Session."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if target is not None and not isinstance(target, (str, bytes)):
            raise TypeError(f"target must be a string, but got {type(target)}")
        self._graph = graph if graph is not None else get_default_graph()
        self._target = target.decode() if isinstance(target, bytes) else target or ""
        self._config = config
        self._options: SessionOptions = read_config(config)
        self._closed = False
        self._prepared: dict[Any, _Prepared] = {}
        self._lock = threading.RLock()
        self._partial: dict[str, Any] = {}
        self._partial_numbers = itertools.count()
        self._master = self._connect()

    def _connect(self) -> Any:
        if not self._target:
            from graphrt.cluster.local import LocalMaster

            options = self._options
            return LocalMaster(self._graph, options.cpus, options.gpus, options.proto, options.log_placement)
        from graphrt.cluster.remote import connect

        return connect(self._target, self._graph, self._options)

    # -- public attributes
    # -------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that this session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        return self._graph.as_graph_def()

    @property
    def sess_str(self) -> str:
        return self._target

    def list_devices(self) -> list[Any]:
        """The devices of the session: `.name`, `.device_type`, `.memory_limit_bytes`, `.incarnation`."""
        self._check_open()
        return [
            DeviceAttributes(d.name, d.type, d.memory_limit, d.incarnation)
            for d in self._master.list_devices()
        ]

    # -- running
    # -----------------------------------------------------------------------------------------------

    def run(
        self,
        fetches: Any,
        feed_dict: dict[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run what `fetches` needs, once.

        Args:
          fetches: a tensor, variable, operation or name, or any nesting of lists, tuples, namedtuples and
          dicts of them.
          feed_dict: values by tensor (or its name): arrays, numbers, lists of the tensor's dtype and shape.
          options: RunOptions (timeout_in_ms, trace_level, output_partition_graphs).
          run_metadata: RunMetadata that is filled in.
        Returns:
          The same nesting with NumPy arrays (None for operations).
        Raises:
          RuntimeError: the session is closed, or the graph is empty.
          TypeError, ValueError: fetches or feeds that do not fit.
          OpError: an error of the step, of a class of `tf.errors`.
        """
        try:
            key = (_fetch_key(fetches), tuple(feed_dict)) if feed_dict else (_fetch_key(fetches), ())
            prepared = self._prepared.get(key)
        except TypeError:  # something unhashable: it is prepared anew
            key, prepared = None, None
        if prepared is None or prepared.edits != self._graph._edits or self._closed:
            prepared = self._prepare(fetches, feed_dict, key)
        if feed_dict:
            values = [f(v) for f, v in zip(prepared.feeders, _flat_values(self._graph, feed_dict))]
        else:
            values = []
        if options is not None or run_metadata is not None:
            made = self._run_with_options(prepared, values, options, run_metadata)
        else:
            made = prepared.executable.run(values, self._options.timeout)
        return prepared.fetches.build([as_fetched(v) for v in made])

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")

    def _prepare(
        self, fetches: Any, feed_dict: dict[Any, Any] | None, key: Any, is_partial: bool = False
    ) -> _Prepared:
        self._check_open()
        graph = self._graph
        if not graph._operations:
            raise RuntimeError(
                "The Session graph is empty. Add operations to the graph before calling run()."
            )
        if feed_dict is not None and not isinstance(feed_dict, Mapping):
            raise TypeError(f"feed_dict must be a dictionary of values by tensor, but got {type(feed_dict)}")
        planned = Fetches(graph, fetches)
        tensors, _ = flatten_feeds(graph, feed_dict) if feed_dict else ([], [])
        with self._lock:
            prepared = self._make(planned, tensors, is_partial)
            if key is not None:
                self._prepared[key] = prepared
        return prepared

    def _make(self, planned: Fetches, tensors: list[Tensor], is_partial: bool = False) -> _Prepared:
        edits = self._graph._edits
        signature = Signature(
            tuple(t.name for t in tensors),
            tuple(t.name for t in planned.tensors),
            tuple(o.name for o in planned.operations),
        )
        executable = (
            self._master.executable(signature, is_partial)
            if is_partial
            else self._master.executable(signature)
        )
        return _Prepared(executable, [Feeder(t) for t in tensors], planned, edits)

    def _run_with_options(
        self, prepared: _Prepared, values: list[Any], options: Any, run_metadata: Any
    ) -> Any:
        from graphrt.cluster.local import Collected

        if options is not None and not hasattr(options, "timeout_in_ms"):
            raise TypeError(f"options must be a tf.RunOptions, but got {type(options)}")
        timeout = run_timeout(options, self._options.timeout)
        collected = Collected() if run_metadata is not None else None
        if collected is None or not (
            wants_trace(options) or getattr(options, "output_partition_graphs", False)
        ):
            return prepared.executable.run(values, timeout)
        collected.wants_partitions = bool(options.output_partition_graphs)
        made = prepared.executable.run(values, timeout, collected)
        from graphrt.client.metadata import fill_metadata

        fill_metadata(run_metadata, collected, wants_trace(options), bool(options.output_partition_graphs))
        return made

    def make_callable(
        self, fetches: Any, feed_list: list[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function of the values of `feed_list`, in order, that runs `fetches`: `run` without its look-ups.

        With `accept_options` it takes `options` and `run_metadata` too.
        """
        feed_tensors = [fed_tensor(self._graph, f) for f in feed_list or ()]
        prepared = self._prepare(fetches, dict.fromkeys(feed_tensors), None)
        count = len(feed_tensors)
        state = [prepared]

        def call(*args: Any, **named: Any) -> Any:
            current = state[0]
            if len(args) != count:
                raise TypeError(f"Expected exactly {count} feed values in feed_list, got {len(args)}")
            if self._closed or current.edits != self._graph._edits:
                current = state[0] = self._prepare(fetches, dict.fromkeys(feed_tensors), None)
            values = [f(v) for f, v in zip(current.feeders, args)]
            if accept_options and named:
                made = self._run_with_options(
                    current, values, named.get("options"), named.get("run_metadata")
                )
            elif named:
                raise TypeError(
                    f"unexpected arguments {sorted(named)}: make_callable(accept_options=True) takes them"
                )
            else:
                made = current.executable.run(values, self._options.timeout)
            return current.fetches.build([as_fetched(v) for v in made])

        return call

    def _make_callable_from_options(self, callable_options: Any) -> Callable[..., Any]:
        """A function of a CallableOptions message: its feeds in order, its fetches as a list."""
        fetches = list(callable_options.fetch)
        targets = [self._graph.as_graph_element(t, allow_tensor=False) for t in callable_options.target]
        inner = self.make_callable([fetches, targets], list(callable_options.feed))
        return lambda *args, **_: inner(*args)[0]

    def partial_run_setup(self, fetches: Any, feeds: list[Any] | None = None) -> str:
        """Begin a step that is fed and fetched in several calls of `partial_run`.

        Args:
          fetches: everything that will be fetched; feeds: every tensor that will be fed.
        Returns:
          A handle for `partial_run`.
        """
        feed_tensors = [fed_tensor(self._graph, f) for f in feeds or ()]
        prepared = self._prepare(fetches, dict.fromkeys(feed_tensors), None, is_partial=True)
        step = prepared.executable.begin_partial(self._options.timeout)
        handle = f"{next(self._partial_numbers)}->{';'.join(t.name for t in prepared.fetches.tensors)}"
        fetched = {t: i for i, t in enumerate(prepared.fetches.tensors)}
        self._partial[handle] = _PartialRun(
            step,
            {t: i for i, t in enumerate(feed_tensors)},
            prepared.feeders,
            fetched,
            set(prepared.fetches.operations),
        )
        return handle

    def partial_run(self, handle: str, fetches: Any, feed_dict: dict[Any, Any] | None = None) -> Any:
        """Go on with a step: give it some feeds, and return some fetches.

        Raises:
          InvalidArgumentError: a feed or fetch that the setup did not name, or that was given before.
        """
        self._check_open()
        partial = self._partial.get(handle)
        if partial is None:
            raise InvalidArgumentError(
                None,
                None,
                f"there is no partial run '{handle}': partial_run_setup returns handles, which hold "
                "until all "
                "that they name was fetched",
            )
        planned = Fetches(self._graph, fetches)
        tensors, values = flatten_feeds(self._graph, feed_dict) if feed_dict else ([], [])
        made = partial.go_on(planned, tensors, values)
        if partial.is_over:
            self._partial.pop(handle, None)
        return planned.build([as_fetched(v) for v in made])

    # -- life
    # --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel the steps that run, and give up the session's variables and queues. Again is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._prepared.clear()
            self._partial.clear()
        self._master.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                self.close()
            except Exception:  # at interpreter exit, half of the modules are gone
                pass

    @staticmethod
    def reset(target: str, containers: list[str] | None = None, config: Any = None) -> None:
        """Clear the resource containers of the servers behind `target`: all where `containers` is None.

        Raises:
          ValueError: a session in one process ('') has nothing that outlives it.
        """
        if not target:
            raise ValueError(
                "Session.reset needs a server's target ('grpc://host:port'): a session of one process "
                "drops its "
                "variables when it is closed"
            )
        from graphrt.cluster.remote import reset

        reset(target, containers, read_config(config))

    def explain(self, fetches: Any, feeds: Any = None) -> Any:
        """What the compiler makes of these fetches and feeds: an Explanation with `.text()` and `.html()`."""
        from graphrt.compiler.explanation import explain

        feed_tensors = [fed_tensor(self._graph, f) for f in feeds or ()]
        prepared = self._prepare(fetches, dict.fromkeys(feed_tensors), None)
        return explain(prepared.executable.compiled)


class _PartialRun:
    """The client's side of a partial run: what was named, given and taken."""

    def __init__(
        self,
        step: Any,
        feeds: dict[Tensor, int],
        feeders: list[Feeder],
        fetches: dict[Tensor, int],
        operations: set[Operation],
    ) -> None:
        self.step, self.feeds, self.feeders, self.fetches, self.operations = (
            step,
            feeds,
            feeders,
            fetches,
            operations,
        )
        self.fed: set[Tensor] = set()
        self.taken: set[Any] = set()

    @property
    def is_over(self) -> bool:
        """True once everything that was named has been fetched and run."""
        return len(self.taken) == len(self.fetches) + len(self.operations)

    def go_on(self, planned: Fetches, tensors: list[Tensor], values: list[Any]) -> list[Any]:
        for tensor in tensors:
            if tensor not in self.feeds:
                raise InvalidArgumentError(
                    None, None, f"The feed '{tensor.name}' was not specified in partial_run_setup."
                )
            if tensor in self.fed:
                raise InvalidArgumentError(None, None, f"The feed '{tensor.name}' has already been fed.")
        for wanted in [*planned.tensors, *planned.operations]:
            if wanted not in self.fetches and wanted not in self.operations:
                raise InvalidArgumentError(
                    None, None, f"'{wanted.name}' was not specified in partial_run_setup."
                )
            if wanted in self.taken:
                raise InvalidArgumentError(None, None, f"'{wanted.name}' was already fetched.")
        given = {self.feeds[t]: self.feeders[self.feeds[t]](v) for t, v in zip(tensors, values)}
        self.fed.update(tensors)
        made = self.step.advance(given, [self.fetches[t] for t in planned.tensors], bool(planned.operations))
        self.taken.update(planned.tensors, planned.operations)
        return made


class Session(BaseSession):
    """Runs operations of a graph and evaluates its tensors.

    Args:
      target: '' for this process, or a server ('grpc://host:port').
      graph: the graph; the default graph where None.
      config: a ConfigProto.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._entered: list[Any] = []

    def __enter__(self) -> Session:
        scopes = [self._graph.as_default(), self.as_default()]
        for scope in scopes:
            scope.__enter__()
        self._entered.append(scopes)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for scope in reversed(self._entered.pop()):
            scope.__exit__(None, None, None)
        self.close()

    def as_default(self) -> _DefaultSession:
        """Make this the default session inside the block; it is not closed at its end."""
        return _DefaultSession(self)


class InteractiveSession(BaseSession):
    """A session that is the default from its construction until `close`, for shells and notebooks."""

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._scopes: list[Any] = []
        if graph is not None:
            scope = graph.as_default()
            scope.__enter__()
            self._scopes.append(scope)
        default = _DefaultSession(self)
        default.__enter__()
        self._scopes.append(default)

    def close(self) -> None:
        super().close()
        while getattr(self, "_scopes", None):
            scope = self._scopes.pop()
            try:
                scope.__exit__(None, None, None)
            except RuntimeError:
                pass  # other defaults were entered since and not left


class DeviceAttributes:
    """A device as `list_devices` tells of it."""

    def __init__(self, name: str, device_type: str, memory_limit_bytes: int, incarnation: int) -> None:
        self.name, self.device_type = name, device_type
        self.memory_limit_bytes, self.incarnation = memory_limit_bytes, incarnation

    def __repr__(self) -> str:
        facts = self.name, self.device_type, self.memory_limit_bytes, self.incarnation
        return f"_DeviceAttributes({', '.join(map(str, facts))})"


class _Defaults(threading.local):
    def __init__(self) -> None:
        self.stack: list[BaseSession] = []


_defaults = _Defaults()


class _DefaultSession:
    def __init__(self, session: BaseSession) -> None:
        self._session = session

    def __enter__(self) -> BaseSession:
        _defaults.stack.append(self._session)
        return self._session

    def __exit__(self, *error: Any) -> None:
        if self._session in _defaults.stack:
            # The last entry of this session: others may stand above it (interactive sessions close in any
            # order).
            at = len(_defaults.stack) - 1 - _defaults.stack[::-1].index(self._session)
            del _defaults.stack[at]


def get_default_session() -> BaseSession | None:
    """The innermost default session of this thread, or None."""
    return _defaults.stack[-1] if _defaults.stack else None


def _eval(element: Any, feed_dict: Any, session: Any) -> Any:
    chosen = session or get_default_session()
    if chosen is None:
        raise ValueError(
            f"Cannot evaluate '{element.name}': No default session is registered. Use `with "
            "sess.as_default()` or pass an "
            "explicit session to `eval(session=sess)`"
        )
    if chosen.graph is not element.graph:
        raise ValueError(
            f"Cannot use the default session to evaluate '{element.name}': the element's graph is "
            "different from the "
            "session's graph. Pass an explicit session to `eval(session=sess)`."
        )
    return chosen.run(element, feed_dict)


set_eval_hook(_eval)


def _fetch_key(fetches: Any) -> Any:
    """A hashable form of `fetches` that tells structures apart. Raises TypeError where there is none."""
    kind = fetches.__class__
    if kind is Tensor or kind is Operation or kind is str:
        return fetches
    if kind is list:
        return (list, *[_fetch_key(f) if f.__class__ in _NESTED else f for f in fetches])
    if kind is tuple:
        return (tuple, *[_fetch_key(f) if f.__class__ in _NESTED else f for f in fetches])
    if isinstance(fetches, dict):
        return (kind, tuple(fetches), *[_fetch_key(f) for f in fetches.values()])
    if isinstance(fetches, tuple):
        return (kind, *[_fetch_key(f) for f in fetches])
    return fetches


_NESTED = frozenset((list, tuple, dict))


def _flat_values(graph: Graph, feed_dict: dict[Any, Any]) -> Any:
    for key in feed_dict:
        if key.__class__ is not Tensor and not isinstance(key, (str, Tensor)) and _is_composite(key):
            return flatten_feeds(graph, feed_dict)[1]
    return feed_dict.values()


def _is_composite(key: Any) -> bool:
    from graphrt.core.tensor import IndexedSlices, SparseTensor

    return isinstance(key, (SparseTensor, IndexedSlices, tuple))


__all__ = ["InteractiveSession", "Session", "get_default_session"]
