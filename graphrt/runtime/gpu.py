"""GPUs by CuPy. Every kernel of the registry that is written over `k.xp` runs on them as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphrt.runtime.devices import AcceleratorDevice


def device_count() -> int:
    """GPUs that CuPy sees; 0 where there is no driver."""
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


class CupyGpu(AcceleratorDevice):
    """GPU:i of the machine."""

    def __init__(self, name: str, index: int) -> None:
        import cupy

        self._cupy, self._cuda = cupy, cupy.cuda.Device(index)
        super().__init__(name, index, int(self._cuda.mem_info[1]))
        self.xp = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.description = (
            f"{properties['name'].decode()}, compute capability {properties['major']}.{properties['minor']}"
        )

    def from_host(self, array: Any) -> Any:
        if (
            isinstance(array, self._cupy.ndarray)
            or not isinstance(array, (np.ndarray, np.generic))
            or array.dtype.hasobject
        ):
            return array
        with self._cuda:
            return self._cupy.asarray(array)

    def to_host(self, array: Any) -> Any:
        return self._cupy.asnumpy(array) if isinstance(array, self._cupy.ndarray) else array
