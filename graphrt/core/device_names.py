"""Device names: /job:worker/replica:0/task:1/device:GPU:0, whole or in part.

`DeviceSpec` is the public form (fields that are None are unspecified); `parse` is cached, since a graph of
36,000 nodes names the same few devices.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

_PART = re.compile(
    r"/?(?:(job):([A-Za-z][A-Za-z0-9_.-]*)|(replica):(\d+|\*)|(task):(\d+|\*)"
    r"|device:([A-Za-z_][A-Za-z0-9_]*|\*)(?::(\d+|\*))?|(cpu|gpu|tpu):(\d+|\*))(?=/|$)",
    re.IGNORECASE,
)


class DeviceName(NamedTuple):
    """The parts of a device name; None is unspecified."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    def __str__(self) -> str:
        text = ""
        if self.job is not None:
            text += f"/job:{self.job}"
        if self.replica is not None:
            text += f"/replica:{self.replica}"
        if self.task is not None:
            text += f"/task:{self.task}"
        if self.type is not None:
            text += f"/device:{self.type}:{'*' if self.index is None else self.index}"
        return text

    def over(self, outer: DeviceName) -> DeviceName:
        """These parts where they are given, `outer`'s elsewhere: how an inner device scope refines an outer
        one."""
        kind, index = (outer.type, outer.index) if self.type is None else (self.type, self.index)
        if self.type is None and self.index is not None:
            index = self.index
        if self.type is not None and self.index is None and self.type == outer.type:
            index = outer.index
        return DeviceName(
            outer.job if self.job is None else self.job,
            outer.replica if self.replica is None else self.replica,
            outer.task if self.task is None else self.task,
            kind,
            index,
        )

    def conflict(self, other: DeviceName) -> str | None:
        """The first part on which both are specified and differ, or None."""
        for part in self._fields:
            a, b = getattr(self, part), getattr(other, part)
            if a is not None and b is not None and a != b:
                return part
        return None

    def matches(self, full: DeviceName) -> bool:
        """True where every part given here is the same in `full`."""
        return all(a is None or a == b for a, b in zip(self, full))


@lru_cache(maxsize=4096)
def parse(text: str) -> DeviceName:
    """The parts of a name such as '/job:ps/task:0/cpu:0', '/device:GPU:*', '/gpu:1' or ''.

    Raises:
      ValueError: the text is not a device name.
    """
    job = replica = task = kind = index = None
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(
                f"Malformed device specification '{text}': at '{text[position:]}' expected "
                "/job:NAME, /replica:N, /task:N or /device:TYPE:N"
            )
        if match[1]:
            job = match[2]
        elif match[3]:
            replica = None if match[4] == "*" else int(match[4])
        elif match[5]:
            task = None if match[6] == "*" else int(match[6])
        elif match[7]:
            if match[7] != "*":
                kind = match[7].upper() if match[7].lower() in ("cpu", "gpu", "tpu") else match[7]
            index = None if match[8] in (None, "*") else int(match[8])
        else:
            kind, index = match[9].upper(), None if match[10] == "*" else int(match[10])
        position = match.end()
    return DeviceName(job, replica, task, kind, index)


def full_name(job: str, task: int, kind: str = "CPU", index: int = 0, replica: int = 0) -> str:
    return f"/job:{job}/replica:{replica}/task:{task}/device:{kind}:{index}"


def task_of(name: str) -> tuple[str, int]:
    """The (job, task index) of a full device name."""
    parts = parse(name)
    if parts.job is None or parts.task is None:
        raise ValueError(f"device '{name}' does not name a task: it needs /job:NAME and /task:N")
    return parts.job, parts.task


def canonical_name(device: Any) -> str:
    """The canonical text of a device name or DeviceSpec; '' for None."""
    if device is None:
        return ""
    return str(parse(device)) if isinstance(device, str) else device.to_string()


def local_device_name(name: str) -> str:
    """The name without its job, replica and task: '/device:CPU:0'."""
    parts = parse(name)
    return str(DeviceName(type=parts.type, index=parts.index))


class DeviceSpec:
    """A device, whole or in part: `DeviceSpec(job="ps", task=0, device_type="CPU", device_index=0)`."""

    def __init__(self, job=None, replica=None, task=None, device_type=None, device_index=None) -> None:
        self._name = DeviceName(
            job,
            None if replica is None else int(replica),
            None if task is None else int(task),
            device_type,
            None if device_index is None else int(device_index),
        )

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        return cls()._set(parse(spec))

    def parse_from_string(self, spec: str) -> DeviceSpec:
        return self._set(parse(spec))

    def merge_from(self, dev: DeviceSpec) -> None:
        """Take over every part that `dev` specifies."""
        self._set(dev._name.over(self._name))

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        return DeviceSpec()._set(dev._name.over(self._name))

    def replace(self, **parts: Any) -> DeviceSpec:
        named = {"device_type": "type", "device_index": "index"}
        return DeviceSpec()._set(self._name._replace(**{named.get(k, k): v for k, v in parts.items()}))

    def _set(self, name: DeviceName) -> DeviceSpec:
        self._name = name
        return self

    def to_string(self) -> str:
        return str(self._name)

    job = property(
        lambda self: self._name.job, lambda self, v: self._set(self._name._replace(job=v)) and None
    )
    replica = property(
        lambda self: self._name.replica, lambda self, v: self._set(self._name._replace(replica=v)) and None
    )
    task = property(
        lambda self: self._name.task, lambda self, v: self._set(self._name._replace(task=v)) and None
    )
    device_type = property(
        lambda self: self._name.type, lambda self, v: self._set(self._name._replace(type=v)) and None
    )
    device_index = property(
        lambda self: self._name.index, lambda self, v: self._set(self._name._replace(index=v)) and None
    )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"DeviceSpec('{self.to_string()}')"


def merge_device(spec: Any):
    """A device function that fills what an op's device leaves open with `spec`'s parts."""
    outer = parse(canonical_name(spec))
    return lambda op: str(parse(op.device or "").over(outer))
