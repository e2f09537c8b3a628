"""tf.train.Saver: variables to checkpoints and back; and graphs with their collections to files and back.

`saver_nodes.py` builds the nodes, `checkpoint_state.py` keeps the list of checkpoints, `formats/bundle.py`
is the file format, `saver_meta_graph.py` the graph's.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from graphrt.core import errors
from graphrt.core.default_graph import get_default_graph
from graphrt.core.graph import Graph
from graphrt.core.graph_keys import GraphKeys
from graphrt.train import checkpoint_state, saver_meta_graph
from graphrt.train.checkpoint_reader import CheckpointReader
from graphrt.train.saver_nodes import (
    V2,
    BulkSaverBuilder,
    all_saveable_objects,
    names_to_saveables,
    saveable_objects,
)
from graphrt.train.training_util import global_step as value_of_step
from graphrt.variables.variable import prepend_scope, strip_scope

_log = logging.getLogger("graphrt")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Saver:
    """Saves variables to checkpoints and restores them.

    Args:
      var_list: variables (or SaveableObjects), or a dict of them by their names in checkpoints; all of the
        graph's by default.
      reshape: restore variables from tensors of another shape with as many elements.
      sharded: write one shard a device, each where its variables are.
      max_to_keep: how many checkpoints are kept; None or 0 keeps all.
      keep_checkpoint_every_n_hours: besides, one in so many hours is kept for ever.
      name: name scope of its nodes, 'save' by default.
      restore_sequentially: accepted; tensors are read one after the other in any case.
      saver_def: a SaverDef of nodes that exist already.
      builder: builds the nodes; a BulkSaverBuilder by default.
      defer_build: build nodes when `build` is called.
      allow_empty: a graph without variables is fine; then nothing is saved.
      write_version: SaverDef.V2, or V1.
      pad_step_number: write steps with eight digits.
      save_relative_paths: paths in the state file are relative, so that the folder can be moved.
      filename: the default of the file name's tensor.
    Raises:
      TypeError: something in var_list is no variable.
      ValueError: names are not unique, or there are no variables.
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        if defer_build and var_list:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. Either set defer_build=False or "
                "var_list=None."
            )
        self._var_list, self._reshape, self._sharded, self._max_to_keep = (
            var_list,
            reshape,
            sharded,
            max_to_keep,
        )
        self._keep_checkpoint_every_n_hours, self._name = keep_checkpoint_every_n_hours, name
        self._restore_sequentially, self.saver_def, self._builder = restore_sequentially, saver_def, builder
        self._allow_empty, self._write_version, self._pad_step_number = (
            allow_empty,
            write_version,
            pad_step_number,
        )
        self._save_relative_paths, self._filename = save_relative_paths, filename
        self._is_built, self._is_empty = False, False
        self._last_checkpoints: list[tuple[str, float]] = []
        self._checkpoints_to_be_deleted: list[tuple[str, float]] = []
        self._object_restore_saver: Saver | None = None
        if not defer_build:
            self.build()
        if self.saver_def is not None:
            self._check_saver_def()
            self._write_version = self.saver_def.version

    def build(self) -> None:
        """Add the nodes, where that was deferred."""
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is None:
            if self._builder is None:
                self._builder = BulkSaverBuilder(self._write_version)
            if self._var_list is None:
                self._var_list = all_saveable_objects()
            if not self._var_list:
                if not self._allow_empty:
                    raise ValueError("No variables to save")
                self._is_empty = True
                return
            self.saver_def = self._builder._build_internal(
                self._var_list,
                reshape=self._reshape,
                sharded=self._sharded,
                max_to_keep=self._max_to_keep,
                keep_checkpoint_every_n_hours=self._keep_checkpoint_every_n_hours,
                name=self._name,
                restore_sequentially=self._restore_sequentially,
                filename=self._filename,
            )
        elif self._name:
            given = self.saver_def
            self.saver_def = type(given)()
            self.saver_def.CopyFrom(given)
            for field in _NAME_FIELDS:
                setattr(self.saver_def, field, prepend_scope(getattr(given, field), self._name))
        self._check_saver_def()
        self._next_checkpoint_time = time.time() + self.saver_def.keep_checkpoint_every_n_hours * 3600

    def _check_saver_def(self) -> None:
        if not hasattr(self.saver_def, "restore_op_name"):
            raise ValueError(f"saver_def must be a saver_pb2.SaverDef: {self.saver_def}")
        if not self.saver_def.save_tensor_name:
            raise ValueError(f"saver_def must specify the save_tensor_name: {self.saver_def}")
        if not self.saver_def.restore_op_name:
            raise ValueError(f"saver_def must specify the restore_op_name: {self.saver_def}")

    # -- messages
    # ----------------------------------------------------------------------------------------------

    def as_saver_def(self) -> Any:
        """The SaverDef that names its nodes."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The SaverDef, without `export_scope` in its names; None where they are not under it."""
        if export_scope is None:
            return self.saver_def
        if not all(getattr(self.saver_def, field).startswith(export_scope) for field in _NAME_FIELDS):
            return None
        made = type(self.saver_def)()
        made.CopyFrom(self.saver_def)
        for field in _NAME_FIELDS:
            setattr(made, field, strip_scope(getattr(made, field), export_scope))
        return made

    @staticmethod
    def from_proto(saver_def: Any, import_scope: str | None = None) -> Saver:
        """The Saver of a SaverDef, whose nodes are in the default graph under `import_scope`."""
        return Saver(saver_def=saver_def, name=import_scope)

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: list[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> Any:
        """The MetaGraphDef of the default graph with this saver; see export_meta_graph."""
        return export_meta_graph(
            filename=filename,
            graph_def=get_default_graph().as_graph_def(add_shapes=True),
            saver_def=self.saver_def,
            collection_list=collection_list,
            as_text=as_text,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )

    # -- the list of checkpoints
    # -------------------------------------------------------------------------------

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that were not deleted yet, oldest first."""
        return [path for path, _ in self._last_checkpoints]

    def set_last_checkpoints(self, last_checkpoints: list[str]) -> None:
        """Say which checkpoints there are, oldest first; their times count as the latest possible."""
        if not isinstance(last_checkpoints, list):
            raise AssertionError(f"last_checkpoints must be a list, not {type(last_checkpoints).__name__}")
        self._last_checkpoints = [(path, float("inf")) for path in last_checkpoints]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: list[tuple[str, float]]) -> None:
        """Say which checkpoints there are, as (prefix, time in seconds since 1970), oldest first."""
        if not isinstance(last_checkpoints_with_time, list):
            raise AssertionError(
                f"last_checkpoints_with_time must be a list, not {type(last_checkpoints_with_time).__name__}"
            )
        self._last_checkpoints = last_checkpoints_with_time

    def recover_last_checkpoints(self, checkpoint_paths: Any) -> None:
        """After a restart: take over those of `checkpoint_paths` that exist, with their files' times."""
        found = []
        for path in checkpoint_paths:
            times = checkpoint_state.get_checkpoint_mtimes([path])
            if times:
                found.append((path, times[0]))
        self.set_last_checkpoints_with_time(found)

    def _record(self, path: str) -> None:
        if not self.saver_def.max_to_keep:
            return
        self._last_checkpoints = [p for p in self._last_checkpoints if p[0] != path] + [(path, time.time())]
        if len(self._last_checkpoints) > self.saver_def.max_to_keep:
            self._checkpoints_to_be_deleted.append(self._last_checkpoints.pop(0))

    def _delete_old(self, meta_graph_suffix: str) -> None:
        if not self._checkpoints_to_be_deleted:
            return
        path, when = self._checkpoints_to_be_deleted.pop(0)
        if when > self._next_checkpoint_time:
            self._next_checkpoint_time += self.saver_def.keep_checkpoint_every_n_hours * 3600
            return
        try:
            checkpoint_state.remove_checkpoint(path, self.saver_def.version, meta_graph_suffix)
        except errors.OpError as error:
            _log.warning("Ignoring: %s", error)

    # -- saving and restoring
    # ----------------------------------------------------------------------------------

    def save(
        self,
        sess: Any,
        save_path: Any,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Write a checkpoint: its files, then the graph's, then the state file that lists it; then delete
        old ones.

        Args:
          sess: a session with the variables.
          save_path: the checkpoint's prefix.
          global_step: a number, or a tensor or name of one, that goes to the prefix: 'model-100'.
          latest_filename: the state file's name, 'checkpoint' by default.
          meta_graph_suffix, write_meta_graph, strip_default_attrs, save_debug_info: of the graph's file.
          write_state: list it in the state file, and delete those that are too many.
        Returns:
          The prefix, to restore from; None where there are no variables.
        Raises:
          TypeError: `sess` is no session.
          ValueError: `latest_filename` has folders or is the checkpoint's name, or the folder does not exist.
          RuntimeError: the nodes were not built.
        """
        if not self._is_built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        latest_filename = latest_filename or "checkpoint"
        if os.path.split(latest_filename)[0]:
            raise ValueError("'latest_filename' must not contain path components")
        save_path = os.fsdecode(save_path)
        checkpoint_file = save_path
        if global_step is not None:
            step = global_step if isinstance(global_step, int) else _step_number(sess, global_step)
            checkpoint_file = f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"
        elif os.path.basename(save_path) == latest_filename and not self._sharded:
            raise ValueError(
                f"'latest_filename' collides with 'save_path': '{latest_filename}' and '{save_path}'"
            )
        _check_session(sess)
        made: str | None = None
        folder = os.path.dirname(save_path)
        try:
            if not self._is_empty:
                feeds = {self.saver_def.filename_tensor_name: checkpoint_file}
                path = sess.run(self.saver_def.save_tensor_name, feeds)
                made = os.fsdecode(path.item() if hasattr(path, "item") else path)
            if write_meta_graph:
                name = checkpoint_state.meta_graph_filename(checkpoint_file, meta_graph_suffix)
                with sess.graph.as_default():
                    self.export_meta_graph(
                        name, strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info
                    )
            if made is not None and write_state:
                self._record(made)
                checkpoint_state.write_checkpoint_state(
                    folder, made, self.last_checkpoints, latest_filename, self._save_relative_paths
                )
                self._delete_old(meta_graph_suffix)
        except (errors.FailedPreconditionError, errors.NotFoundError):
            if folder and not os.path.isdir(folder):
                raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.") from None
            raise
        return made

    def restore(self, sess: Any, save_path: Any) -> None:
        """Set the variables to their values in a checkpoint; they need not be initialised.

        Args:
          save_path: what `save` or `latest_checkpoint` returned.
        Raises:
          ValueError: there is no such checkpoint.
          NotFoundError: a variable is not in it.
          InvalidArgumentError: one has another shape or dtype in it.
          DataLossError: it is damaged.
        """
        if self._is_empty:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = os.fsdecode(save_path)
        if not checkpoint_state.checkpoint_exists(prefix):
            raise ValueError("The passed save_path is not a valid checkpoint: " + prefix)
        _log.info("Restoring parameters from %s", prefix)
        try:
            sess.run(self.saver_def.restore_op_name, {self.saver_def.filename_tensor_name: prefix})
        except errors.NotFoundError as error:
            keys = _object_keys(prefix)
            if keys is None:
                raise _explained(error, "a Variable name or other graph key that is missing") from None
            _log.warning("Restoring an object-based checkpoint by the names of its variables.")
            self._restore_objects(sess, prefix, keys)
        except errors.InvalidArgumentError as error:
            raise _explained(error, "a mismatch between the current graph and the graph") from None

    def _restore_objects(self, sess: Any, prefix: str, keys: dict[str, str]) -> None:
        """Restore from a checkpoint of tf.train.Checkpoint, whose tensors are keyed by objects; `keys` by
        variables."""
        var_list = all_saveable_objects() if self._var_list is None else self._var_list
        saveables = saveable_objects(var_list if isinstance(var_list, dict) else names_to_saveables(var_list))
        missing = sorted({spec.name for s in saveables for spec in s.specs} - set(keys))
        if missing:
            raise errors.NotFoundError(
                None,
                None,
                f"the object-based checkpoint {prefix} has no variables called "
                f"{', '.join(missing)}; it has {', '.join(sorted(keys))}",
            )
        if self._object_restore_saver is None:
            for saveable in saveables:
                for spec in saveable.specs:
                    spec.name = keys[spec.name]
            self._object_restore_saver = Saver(saveables, name=self._name)
        self._object_restore_saver.restore(sess, prefix)


_NAME_FIELDS = ("filename_tensor_name", "save_tensor_name", "restore_op_name")


def _step_number(sess: Any, step: Any) -> int:
    return (
        int(step) if hasattr(step, "__index__") and not hasattr(step, "graph") else value_of_step(sess, step)
    )


def _check_session(sess: Any) -> None:
    if not callable(getattr(sess, "run", None)) or not isinstance(getattr(sess, "graph", None), Graph):
        raise TypeError(f"'sess' must be a Session; {sess}")


def _explained(error: errors.OpError, what: str) -> errors.OpError:
    return type(error)(
        error.node_def,
        error.op,
        f"Restoring from checkpoint failed. This is most likely due to {what} from the checkpoint. Please "
        "ensure that you have not altered the graph expected based on the checkpoint. Original error:\n\n"
        + error.message,
    )


def _object_keys(prefix: str) -> dict[str, str] | None:
    """Names of variables to keys in an object-based checkpoint; None where it is not one."""
    from graphrt.protos import trackable_object_graph_pb2

    reader = CheckpointReader(prefix)
    if not reader.has_tensor(_OBJECT_GRAPH):
        return None
    objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    return {a.full_name: a.checkpoint_key for node in objects.nodes for a in node.attributes}


def _get_saver_or_default() -> Saver:
    """The Saver of the collection 'savers'; a sharded one of all variables, which joins it, where it is
    empty.

    Raises:
      RuntimeError: there are several.
    """
    graph = get_default_graph()
    found = graph.get_collection(GraphKeys.SAVERS)
    if len(found) > 1:
        raise RuntimeError(
            f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by "
            "passing "
            "it to the constructor."
        )
    if not found:
        found = [Saver(sharded=True, allow_empty=True)]
        graph.add_to_collection(GraphKeys.SAVERS, found[0])
    return found[0]


def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: list[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    **kwargs: Any,
) -> Any:
    """The MetaGraphDef of a graph: nodes, collections, saver. Written to a file where one is named.

    Args:
      meta_info_def, graph_def, saver_def: messages that go into it in place of what would be made.
      collection_list: names of the collections that go into it; all by default.
      as_text: write the file as text.
      graph: the default graph by default.
      export_scope: only what is under this name scope, which is taken off the names.
      clear_devices: without devices.
      clear_extraneous_savers: without the nodes of savers other than `saver_def`'s.
      strip_default_attrs: without attrs that have their defaults.
      save_debug_info: write which line built each node into a file beside it.
    """
    return saver_meta_graph.export_scoped_meta_graph(
        filename=filename,
        meta_info_def=meta_info_def,
        graph_def=graph_def,
        saver_def=saver_def,
        collection_list=collection_list,
        as_text=as_text,
        graph=graph,
        export_scope=export_scope,
        clear_devices=clear_devices,
        clear_extraneous_savers=clear_extraneous_savers,
        strip_default_attrs=strip_default_attrs,
        save_debug_info=save_debug_info,
        **kwargs,
    )[0]


def import_meta_graph(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None, **kwargs: Any
) -> Saver | None:
    """Add a MetaGraphDef's nodes and collections to the default graph.

    Args:
      meta_graph_or_file: the message, or the name of its file.
      clear_devices: without devices.
      import_scope: name scope before all names.
      input_map, return_elements and others: as those of import_scoped_meta_graph.
    Returns:
      The Saver that it names; a new one where it names none; None where it has no variables.
    Raises:
      OSError: the file does not exist, or is no MetaGraphDef.
    """
    return _import_meta_graph_with_return_elements(meta_graph_or_file, clear_devices, import_scope, **kwargs)[
        0
    ]


def _import_meta_graph_with_return_elements(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    return_elements: list[str] | None = None,
    **kwargs: Any,
) -> tuple[Saver | None, list[Any] | None]:
    """import_meta_graph that returns elements too."""
    message = meta_graph_or_file
    if isinstance(message, (str, bytes, os.PathLike)):
        message = saver_meta_graph.read_meta_graph_file(os.fsdecode(message))
    variables, elements = saver_meta_graph.import_scoped_meta_graph(
        message,
        clear_devices=clear_devices,
        import_scope=import_scope,
        return_elements=return_elements,
        **kwargs,
    )
    if message.HasField("saver_def"):
        scope = import_scope
        if variables:
            name, variable = next(iter(variables.items()))
            scope = variable.name[: -len(name)]
        return Saver(saver_def=message.saver_def, name=scope), elements
    return (Saver() if all_saveable_objects(scope=import_scope) else None), elements
