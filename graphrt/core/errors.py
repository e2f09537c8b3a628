"""The exception tree: TensorFlow's names and codes.

    Exception
     └─ OpError(node, message)            .node_def .op .message .error_code
         ├─ CancelledError            1    ├─ UnauthenticatedError    16
         ├─ UnknownError              2    ├─ ResourceExhaustedError   8
         ├─ InvalidArgumentError      3    ├─ FailedPreconditionError  9
         ├─ DeadlineExceededError     4    ├─ AbortedError            10
         ├─ NotFoundError             5    ├─ OutOfRangeError         11
         ├─ AlreadyExistsError        6    ├─ UnimplementedError      12
         ├─ PermissionDeniedError     7    ├─ InternalError           13
         └─ DataLossError            15    └─ UnavailableError        14

A message is one sentence of what happened, then a line a fact: the op, where the user built it, the
device, a hint. `describe` adds those lines to an error that a kernel raised.
"""

from __future__ import annotations

import linecache
from typing import Any

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = (
    range(8)
)
(
    RESOURCE_EXHAUSTED,
    FAILED_PRECONDITION,
    ABORTED,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    INTERNAL,
    UNAVAILABLE,
    DATA_LOSS,
) = range(8, 16)
UNAUTHENTICATED = 16


class OpError(Exception):
    """An error of a step, with the node that it happened in.

    Args:
      node_def: the NodeDef of the failing node, or None.
      op: the Operation, or None.
      message: what happened.
      error_code: one of the codes of this module.
    """

    code = UNKNOWN

    def __init__(
        self,
        node_def: Any = None,
        op: Any = None,
        message: str = "",
        error_code: int | None = None,
        *ignored: Any,
    ) -> None:
        super().__init__(message)
        self._node_def, self._op, self._message = node_def, op, message
        self._error_code = self.code if error_code is None else error_code

    @property
    def message(self) -> str:
        return self._message

    @property
    def op(self) -> Any:
        return self._op

    @property
    def node_def(self) -> Any:
        return self._node_def

    @property
    def error_code(self) -> int:
        return self._error_code

    def __str__(self) -> str:
        return self._message

    def __reduce__(self):
        return type(self), (None, None, self._message)


BY_CODE: dict[int, type[OpError]] = {UNKNOWN: OpError}


def _kind(name: str, code: int, doc: str) -> type[OpError]:
    def __init__(self, node_def=None, op=None, message="", *ignored):
        OpError.__init__(self, node_def, op, message, code)

    made = type(
        name, (OpError,), {"__init__": __init__, "__doc__": doc, "code": code, "__module__": __name__}
    )
    BY_CODE[code] = made
    return made


CancelledError = _kind(
    "CancelledError", CANCELLED, "The step was cancelled: a closed session or queue, or Ctrl-C."
)
UnknownError = _kind("UnknownError", UNKNOWN, "An error of no known kind, as from user code in py_func.")
InvalidArgumentError = _kind(
    "InvalidArgumentError", INVALID_ARGUMENT, "A value, shape or dtype an op cannot take."
)
DeadlineExceededError = _kind("DeadlineExceededError", DEADLINE_EXCEEDED, "A wait ended by its deadline.")
NotFoundError = _kind("NotFoundError", NOT_FOUND, "A file, resource, node or device that is not there.")
AlreadyExistsError = _kind(
    "AlreadyExistsError", ALREADY_EXISTS, "Something that may exist once exists already."
)
PermissionDeniedError = _kind("PermissionDeniedError", PERMISSION_DENIED, "Not allowed.")
UnauthenticatedError = _kind("UnauthenticatedError", UNAUTHENTICATED, "No valid credentials.")
ResourceExhaustedError = _kind(
    "ResourceExhaustedError", RESOURCE_EXHAUSTED, "Memory, disk or a quota ran out."
)
FailedPreconditionError = _kind(
    "FailedPreconditionError",
    FAILED_PRECONDITION,
    "The state does not allow it: an uninitialised variable, for one.",
)
AbortedError = _kind("AbortedError", ABORTED, "Ended by someone else: a restarted task, a repeated step.")
OutOfRangeError = _kind("OutOfRangeError", OUT_OF_RANGE, "Past the end: a closed, empty queue; end of input.")
UnimplementedError = _kind("UnimplementedError", UNIMPLEMENTED, "A thing that graphrt does not have.")
InternalError = _kind("InternalError", INTERNAL, "An invariant of graphrt is broken: please report it.")
UnavailableError = _kind("UnavailableError", UNAVAILABLE, "A task that cannot be reached now.")
DataLossError = _kind("DataLossError", DATA_LOSS, "A corrupt file or message.")


def from_code(code: int, message: str) -> OpError:
    """The error of `code` (1 to 16) with `message`; OpError for a code that is not known."""
    made = BY_CODE.get(code)
    return made(None, None, message) if made else OpError(None, None, message, code)


def exception_type_from_error_code(code: int) -> type[OpError]:
    return BY_CODE[code]


def error_code_from_exception_type(kind: type[OpError]) -> int:
    return kind.code


def source_line(location: tuple[str, int] | None) -> str:
    """'train.py:41   h = tf.matmul(x, w)' of a (file, line), or '' where it is not known."""
    if location is None:
        return ""
    file, line = location
    text = linecache.getline(file, line).strip()
    short = file.rsplit("/", 1)[-1]
    return f"{short}:{line}" + (f"   {text}" if text else "")


def describe(error: BaseException, node: Any = None, device: str = "") -> OpError:
    """`error` as an OpError whose message says which node it happened in, who built it, and where it ran.

    A kernel raises what fits: an OpError of this module keeps its class; ValueError and TypeError become
    InvalidArgumentError, MemoryError ResourceExhaustedError, FileNotFoundError NotFoundError, anything else
    InternalError. An error that was described before is returned as it is.
    """
    if isinstance(error, OpError) and (error._node_def is not None or node is None):
        return error
    kind: type[OpError]
    if isinstance(error, OpError):
        kind, message = type(error), error._message
    elif isinstance(error, (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError)):
        kind, message = InvalidArgumentError, str(error)
    elif isinstance(error, MemoryError):
        kind, message = ResourceExhaustedError, str(error) or "out of memory"
    elif isinstance(error, FileNotFoundError):
        kind, message = NotFoundError, str(error)
    elif isinstance(error, PermissionError):
        kind, message = PermissionDeniedError, str(error)
    elif isinstance(error, (NotImplementedError,)):
        kind, message = UnimplementedError, str(error)
    else:
        kind, message = InternalError, f"{type(error).__name__}: {error}"
    if node is None:
        return kind(None, None, message)
    lines = [message, f"  op       '{node.name}' ({node.type})"]
    built = source_line(getattr(node, "location", None))
    if built:
        lines.append(f"  built at {built}")
    device = device or node.device
    if device:
        lines.append(f"  device   {device}")
    hint = getattr(error, "hint", "")
    if hint:
        lines.append(f"  hint     {hint}")
    return kind(node, getattr(node, "origin", None), "\n".join(lines))


def with_hint(error: Exception, hint: str) -> Exception:
    """`error`, carrying a line that says what would work; `describe` prints it."""
    error.hint = hint  # type: ignore[attr-defined]
    return error
