"""What the compiler asks of devices, and `DeviceSet`, which answers it for many nodes at the price of a few.

A set of devices is an int with one bit a device, in order of preference: the lowest bit is the device that a
node with no wish gets. Masks are kept for each device name asked for and for each op with its dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from graphrt.core import device_names
from graphrt.core.device_names import DeviceName
from graphrt.core.registry import OpDef
from graphrt.core.signature import Attr

# Preferred where an op has kernels on several types of device.
_TYPE_ORDER = {"GPU": 0, "CPU": 1}


class Device(Protocol):
    """A device of this process or of another task.

    Attributes:
      name: its full name.
      type: 'CPU' or 'GPU'.
      incarnation: a random number, new at every start of its process.
    """

    name: str
    type: str
    incarnation: int

    def supports(self, op_def: OpDef, dtypes: list[Any] | None = None) -> bool:
        """True where it has a kernel of the op for these dtypes of its inputs and outputs."""
        ...


class DeviceSet:
    """The devices of a session in order of preference: the client's task first, and in a task GPUs before
    CPUs.

    Args:
      devices: every device that a node may be put on.
      client_device: full name of the device where feeds and fetches are; its task is preferred.
    """

    def __init__(self, devices: Iterable[Device], client_device: str) -> None:
        client = device_names.parse(client_device)

        def preference(device: Device) -> tuple[Any, ...]:
            parts = device_names.parse(device.name)
            is_local = (parts.job, parts.replica, parts.task) == (client.job, client.replica, client.task)
            return (not is_local, parts.job or "", parts.replica or 0, parts.task or 0,
                    _TYPE_ORDER.get(device.type, 2), parts.index or 0)

        self.devices: list[Device] = sorted(devices, key=preference)
        self.client_device = client_device
        self.names = [d.name for d in self.devices]
        self.by_name = {d.name: d for d in self.devices}
        self.every = (1 << len(self.devices)) - 1
        self._parsed: list[DeviceName] = [device_names.parse(n) for n in self.names]
        self._matching: dict[DeviceName, int] = {}
        self._supporting: dict[tuple[Any, ...], int] = {}
        self._type_attrs: dict[OpDef, list[Attr]] = {}

    def matching(self, name: DeviceName) -> int:
        """The devices that a name, whole or in part, stands for."""
        mask = self._matching.get(name)
        if mask is None:
            mask = sum(1 << i for i, full in enumerate(self._parsed) if name.matches(full))
            self._matching[name] = mask
        return mask

    def supporting(self, op_def: OpDef, attrs: dict[str, Any]) -> int:
        """The devices that have a kernel of the op with these attrs."""
        type_attrs = self._type_attrs.get(op_def)
        if type_attrs is None:
            type_attrs = self._type_attrs[op_def] = [a for a in op_def.attrs.values() if a.kind == "type"]
        key = (op_def, *[tuple(attrs[a.name]) if a.is_list else attrs[a.name] for a in type_attrs])
        mask = self._supporting.get(key)
        if mask is None:
            mask = self._supporting[key] = self._ask(op_def, attrs)
        return mask

    def _ask(self, op_def: OpDef, attrs: dict[str, Any]) -> int:
        types = op_def.types(op_def.inputs, attrs) + op_def.types(op_def.outputs, attrs)
        dtypes = list(dict.fromkeys(d.base_dtype for d in types))
        return sum(1 << i for i, device in enumerate(self.devices) if device.supports(op_def, dtypes))

    def first(self, mask: int) -> str:
        """The preferred device of a mask that is not empty."""
        return self.names[(mask & -mask).bit_length() - 1]

    def bit(self, full_name: str) -> int:
        """The mask of one device; 0 where it is not in the set."""
        return 1 << self.names.index(full_name) if full_name in self.by_name else 0

    def listed(self, mask: int) -> Sequence[str]:
        """The names of the devices of a mask."""
        return [name for i, name in enumerate(self.names) if mask >> i & 1]
