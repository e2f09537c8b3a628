"""The nodes at the cuts between partitions. The runtime's starters carry them out; they have no kernel of
their own."""

from __future__ import annotations

from typing import Any

from graphrt.core.registry import op
from graphrt.core.samples import program
from graphrt.core.shapes import UNKNOWN, TensorShape

_ATTRS: dict[str, Any] = {"tensor_name": "string", "send_device": "string", "send_device_incarnation": "int",
                          "recv_device": "string", "client_terminated": "bool = False"}


def _crossing(tf: Any) -> list[Any]:
    with tf.device("/cpu:0"):
        a = tf.constant([1.0, 2.0])
    return [a * 2.0]


_SAMPLES = [program(_crossing, why="partition makes them; a value is the same on both sides")]


@op("_Send(tensor: T)", T="type", **_ATTRS)
class Send:
    """Hands `tensor` to the step's rendezvous; never waits."""

    stateful = True
    samples = _SAMPLES


@op("_HostSend(tensor: T)", T="type", **_ATTRS)
class HostSend:
    """`_Send` of a tensor in host memory."""

    stateful = True
    host_inputs = (0,)
    samples = _SAMPLES


@op("_Recv() -> tensor: tensor_type", tensor_type="type", **_ATTRS)
class Recv:
    """Waits for a tensor of the step's rendezvous."""

    stateful = True
    asynchronous = True

    def shape(self, s: Any) -> TensorShape:
        return UNKNOWN

    samples = _SAMPLES


@op("_HostRecv() -> tensor: tensor_type", tensor_type="type", **_ATTRS)
class HostRecv:
    """`_Recv` into host memory."""

    stateful = True
    asynchronous = True
    host_outputs = (0,)

    def shape(self, s: Any) -> TensorShape:
        return UNKNOWN

    samples = _SAMPLES


@op("_DeferredArg() -> output: T", T="type", index="int >= 0")
class DeferredArg:
    """A feed of a partial run: it comes in a later call."""

    stateful = True
    asynchronous = True

    def shape(self, s: Any) -> TensorShape:
        return UNKNOWN

    def start(self, k: Any, step: Any, done: Any) -> None:
        step.on_feed(k.attrs["index"], done)

    samples = [program(lambda tf: [tf.constant(1.0)], why="Session.partial_run makes it")]
