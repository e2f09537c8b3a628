"""FileWriter: events to an event file, in the background.

Events go through a bounded queue to one thread, which writes them and flushes every `flush_secs`. An error
of that thread is raised by the call that meets it; a writer that nobody closed is closed when the process
ends.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph import Graph
from graphrt.formats.atomic_files import os_error
from graphrt.formats.event_file import EventFileWriter, read_events

_log = logging.getLogger("graphrt")
_FLUSH, _CLOSE = object(), object()
# How long the end of the process, or of a forgotten writer, waits for events that were not written.
_EXIT_DEADLINE_S = 10.0
# How often a full queue is looked at: whether its thread still lives.
_PATIENCE_S = 1.0


class _Background:
    """The thread of a writer, its queue and its file."""

    def __init__(self, prefix: str, suffix: str, max_queue: int, flush_secs: float) -> None:
        self._file = EventFileWriter(prefix, suffix)
        self._queue: queue.Queue[Any] = queue.Queue(max(0, max_queue))
        self._flush_secs = flush_secs
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="graphrt-event-writer", daemon=True)
        self._thread.start()

    def put(self, item: Any, deadline: float | None = None) -> None:
        """Hand `item` to the thread, and wait while the queue is full. Raises the thread's error where it
        has one."""
        while True:
            self.check()
            try:
                self._queue.put(item, timeout=_PATIENCE_S)
                return
            except queue.Full:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{self._file.path}: events could not be written in time") from None

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def flush(self, deadline: float | None = None) -> None:
        """Return once all that was put before is in the file."""
        is_done = threading.Event()
        self.put((_FLUSH, is_done), deadline)
        while not is_done.wait(_PATIENCE_S):
            self.check()
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self._file.path}: events could not be written in time")
        self.check()

    def close(self, deadline: float | None = None) -> None:
        try:
            self.put((_CLOSE, None), deadline)
        finally:
            self._thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self.check()

    def _run(self) -> None:
        next_flush = 0.0
        try:
            while True:
                try:
                    item = self._queue.get(
                        timeout=None if next_flush == 0.0 else max(0.01, next_flush - time.monotonic())
                    )
                except queue.Empty:
                    self._file.flush()
                    next_flush = 0.0
                    continue
                if item.__class__ is not tuple:
                    self._file.write(item)
                    if next_flush == 0.0:
                        next_flush = time.monotonic() + self._flush_secs
                    elif time.monotonic() > next_flush:
                        self._file.flush()
                        next_flush = 0.0
                elif item[0] is _FLUSH:
                    self._file.flush()
                    next_flush = 0.0
                    item[1].set()
                else:
                    break
            self._file.close()
        except BaseException as error:  # whoever uses the writer next gets it
            self.error = error
            _log.error("The event writer of %s ended: %s", self._file.path, error)


def _finish(
    background: _Background, shared: _Shared | None, deadline_s: float | None = _EXIT_DEADLINE_S
) -> None:
    """Write what is queued and close the file, unless another writer uses it too."""
    deadline = None if deadline_s is None else time.monotonic() + deadline_s
    if shared is not None and not shared.release():
        background.flush(deadline)
    else:
        background.close(deadline)


class FileWriter:
    """Writes summaries, graphs and other events to a new event file in a folder.

    Args:
      logdir: the folder; it is made where it is missing.
      graph: a Graph that is written at once.
      max_queue: how many events may wait to be written before calls wait.
      flush_secs: how often what was written is flushed.
      graph_def: a GraphDef in place of `graph`.
      filename_suffix: the end of the file's name.
      session: writers of one session and folder share their file.
    """

    def __init__(
        self,
        logdir: Any,
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        self._logdir = os.fsdecode(logdir)
        self._max_queue, self._flush_secs, self._suffix = max_queue, flush_secs, filename_suffix or ""
        try:
            os.makedirs(self._logdir, exist_ok=True)
        except OSError as error:
            raise os_error(error, self._logdir) from None
        self._lock = threading.Lock()
        self._run_tags: set[str] = set()
        self._seen_tags: set[str] = set()
        self._is_closed = False
        self._background: _Background | None = None
        self._shared = _shared_background(session, self._logdir) if session is not None else None
        self._start()
        if graph is not None or graph_def is not None:
            self.add_graph(graph=graph, graph_def=graph_def)
            from graphrt.train.saver_meta_graph import create_meta_graph_def

            shown = graph_def if graph_def is not None else graph
            if isinstance(shown, Graph):
                shown = shown.as_graph_def(add_shapes=True)
            self.add_meta_graph(
                create_meta_graph_def(graph_def=shown, graph=graph if isinstance(graph, Graph) else None)
            )

    def _start(self) -> None:
        def make() -> _Background:
            return _Background(
                os.path.join(self._logdir, "events"), self._suffix, self._max_queue, self._flush_secs
            )

        self._background = self._shared.acquire(make) if self._shared is not None else make()
        # Closes a writer that is forgotten, or still open when the process ends.
        self._finish = weakref.finalize(self, _finish, self._background, self._shared)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def get_logdir(self) -> str:
        return self._logdir

    # -- events
    # ------------------------------------------------------------------------------------------------

    def add_event(self, event: Any) -> None:
        """Add an Event message. A closed writer ignores it."""
        if self._is_closed:
            _log.warning(
                "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter "
                "is "
                "explicitly reopened."
            )
            return
        assert self._background is not None
        self._background.put(event)

    def _add(self, step: Any, **content: Any) -> None:
        from graphrt.protos import event_pb2

        event = event_pb2.Event(wall_time=time.time(), **content)
        if step is not None:
            event.step = int(step)
        self.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add a Summary message, or a serialized one, as summary nodes give it.

        What a plugin needs to know of a tag is written with its first value only.
        """
        from graphrt.protos import summary_pb2

        made = summary_pb2.Summary()
        made.MergeFromString(summary if isinstance(summary, bytes) else summary.SerializeToString())
        for value in made.value:
            if not value.HasField("metadata"):
                continue
            if value.tag in self._seen_tags:
                value.ClearField("metadata")
            else:
                self._seen_tags.add(value.tag)
        self._add(global_step, summary=made)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add a SessionLog message: a start, stop or checkpoint."""
        from graphrt.protos import event_pb2

        self._add(global_step, session_log=event_pb2.SessionLog.FromString(session_log.SerializeToString()))

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Add a Graph, which TensorBoard shows.

        Args:
          graph_def: a GraphDef in place of it.
        Raises:
          ValueError: both are given.
          TypeError: it is neither.
        """
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        shown = graph if graph is not None else graph_def
        if isinstance(shown, Graph):
            shown = shown.as_graph_def(add_shapes=True)
        if not hasattr(shown, "node"):
            raise TypeError("The passed graph must be an instance of `Graph` or the deprecated `GraphDef`")
        self._add(global_step, graph_def=shown.SerializeToString())

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Add a MetaGraphDef. Raises TypeError where it is not one."""
        if not hasattr(meta_graph_def, "meta_info_def"):
            raise TypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        self._add(global_step, meta_graph_def=meta_graph_def.SerializeToString())

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Add the RunMetadata of a step. Raises ValueError where the tag was used."""
        from graphrt.protos import event_pb2

        if tag in self._run_tags:
            raise ValueError("The provided tag was already used for this event type")
        self._run_tags.add(tag)
        made = event_pb2.TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self._add(global_step, tagged_run_metadata=made)

    # -- the file
    # ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Return once all events are in the file. A closed writer does nothing."""
        if not self._is_closed:
            assert self._background is not None
            self._background.flush()

    def close(self) -> None:
        """Write what is left and close the file."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._finish.detach()
        assert self._background is not None
        _finish(self._background, self._shared, None)

    def reopen(self) -> None:
        """After close: go on in a new event file. Does nothing where it is open."""
        with self._lock:
            if self._is_closed:
                self._start()
                self._is_closed = False


class _Shared:
    """A _Background that the writers of a session use together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users, self._background = 0, None

    def acquire(self, make: Any) -> _Background:
        with self._lock:
            if self._users == 0:
                self._background = make()
            self._users += 1
            return self._background  # type: ignore[return-value]

    def release(self) -> bool:
        """True for the last user, who closes it."""
        with self._lock:
            self._users -= 1
            return self._users == 0


_sessions: weakref.WeakKeyDictionary[Any, dict[str, _Shared]] = weakref.WeakKeyDictionary()
_sessions_lock = threading.Lock()


def _shared_background(session: Any, logdir: str) -> _Shared:
    with _sessions_lock:
        return _sessions.setdefault(session, {}).setdefault(os.path.abspath(logdir), _Shared())


class FileWriterCache:
    """One FileWriter a folder, for those who write to the same."""

    _cache: dict[str, FileWriter] = {}
    _lock = threading.RLock()

    @staticmethod
    def clear() -> None:
        """Close and forget all writers."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._cache.values():
                writer.close()
            FileWriterCache._cache = {}

    @staticmethod
    def get(logdir: str) -> FileWriter:
        """The writer of a folder, with the default graph where it is new."""
        with FileWriterCache._lock:
            if logdir not in FileWriterCache._cache:
                FileWriterCache._cache[logdir] = FileWriter(logdir, graph=get_default_graph())
            return FileWriterCache._cache[logdir]


def summary_iterator(path: Any) -> Iterator[Any]:
    """The Event messages of an event file, in order.

    Raises:
      OpError: the file cannot be read.
      DataLossError: a record is damaged or cut off.
    """
    return read_events(os.fsdecode(path))
