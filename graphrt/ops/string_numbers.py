"""Text to numbers and back: StringToNumber, AsString, raw bytes, base64, CSV, serialized tensors."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from graphrt.core.dtypes import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    variant,
)
from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import Later, ints, normal, sample, text
from graphrt.core.shapes import UNKNOWN, TensorShape
from graphrt.core.tensor_proto import to_array, to_proto
from graphrt.ops.strings import map_text, scalar_text, text_array

_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")
_DECIMAL = re.compile(
    rb"\s*[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)\s*",
    re.I,
)
_HEXADECIMAL = re.compile(rb"\s*[+-]?0x[0-9a-f]*\.?[0-9a-f]*(?:p[+-]?[0-9]+)?\s*", re.I)


def parse_number(item: bytes, dtype: DType) -> Any:
    """The number that a string is; None where it is none, or does not fit in an integer `dtype`."""
    if dtype.is_integer:
        if not _INTEGER.fullmatch(item):
            return None
        value = int(item)
        return value if dtype.min <= value <= dtype.max else None
    if _DECIMAL.fullmatch(item):
        return float(item)
    if _HEXADECIMAL.fullmatch(item):
        try:
            return float.fromhex(item.decode())
        except ValueError:
            return None
    return None


@op(
    "StringToNumber(string_tensor: string) -> output: out_type",
    out_type="type in {float,double,int32,int64,uint32,uint64} = float",
)
class StringToNumber:
    """The number that each string is; whitespace around it does not count."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, string_tensor: TensorShape) -> TensorShape:
        return string_tensor

    def compute(self, k: KernelContext, string_tensor: Any) -> Any:
        dtype, made = k.output_dtypes[0], np.empty(string_tensor.shape, k.dtype)
        flat = made.reshape(-1)
        with np.errstate(over="ignore"):
            for i, item in enumerate(string_tensor.reshape(-1).tolist()):
                value = parse_number(item, dtype)
                if value is None:
                    raise InvalidArgumentError(
                        None,
                        None,
                        "StringToNumberOp could not correctly convert string: "
                        f"{item.decode(errors='backslashreplace')} to {dtype.name}",
                    )
                flat[i] = value
        return made

    samples = [
        sample(text("1.5", " -2 ", "1e3", "inf", "nan", "0x10", "1e400", ".5", "5.")),
        sample(text("7", "+5", " -3 "), out_type="int32"),
        sample(text("99999999999"), out_type="int64"),
        sample(text("0.1").reshape(()), out_type="double"),
        sample(text()),
    ]


@op(
    "AsString(input: T) -> output: string",
    T=(*FLOATS, *INTEGERS, *COMPLEX, bool_, variant, string),
    precision="int = -1",
    scientific="bool = False",
    shortest="bool = False",
    width="int = -1",
    fill="string = ''",
)
class AsString:
    """Each element as text: by %f (%e, %g with `scientific`, `shortest`), with `precision`, in `width`
    filled with `fill`."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        write = self._writer(k.attrs, k.input_dtypes[0])
        return lambda input: text_array([write(v) for v in input.reshape(-1).tolist()], input.shape)

    @staticmethod
    def _writer(attrs: dict[str, Any], dtype: DType) -> Callable[[Any], bytes]:
        precision, width, fill = attrs["precision"], attrs["width"], attrs["fill"].decode()
        if attrs["scientific"] and attrs["shortest"]:
            raise ValueError("Cannot select both scientific and shortest notation")
        if fill and fill not in "+ 0-":
            raise ValueError(f'Fill argument not supported: "{fill}": it is one of "+", " ", "0", "-"')
        is_real = dtype.is_floating or dtype.is_complex
        if precision >= 0 and not is_real:
            raise ValueError(f"precision not supported for datatype {dtype.name}")
        size = str(width) if width >= 0 else ""
        if dtype is string:
            padded = f"%{'-' if fill == '-' else ''}{size}s".encode()
            return lambda v: padded % v
        if dtype.is_bool:
            return lambda v: b"true" if v else b"false"
        kind = "d" if not is_real else "e" if attrs["scientific"] else "g" if attrs["shortest"] else "f"
        one = f"%{fill}{size}{f'.{precision}' if precision >= 0 else ''}{kind}".encode()
        if dtype.is_complex:
            return lambda v: b"(%b,%b)" % (one % v.real, one % v.imag)
        return lambda v: one % v

    samples = [
        sample(np.array([1.5, 1e20, np.nan, np.inf, -np.inf, 1 / 3], np.float32)),
        sample(ints(3)),
        sample(np.array([True, False])),
        sample(normal(2, dtype="complex64"), precision=2, width=8),
        sample(normal(3), precision=2),
        sample(normal(3), scientific=True),
        sample(np.array([1 / 3, 1e10], np.float32), shortest=True),
        sample(np.array([5, -5]), width=5, fill="0"),
        sample(np.array([5, -5]), width=5, fill="-"),
        sample(np.array([1.5]), width=10, fill="+", precision=1),
        sample(text("ab"), width=5),
        sample(np.float64(0.1)),
    ]


_RAW = (half, float32, float64, int32, uint16, uint8, int16, int8, int64, *COMPLEX, bool_, bfloat16)


def _from_bytes(joined: bytes, dtype: np.dtype, little_endian: bool) -> Any:
    made = np.frombuffer(joined, dtype)
    if little_endian or dtype.itemsize == 1:
        return made.copy()
    # Both halves of a complex number are swapped on their own.
    parts = made.view(made.real.dtype) if dtype.kind == "c" else made
    return parts.byteswap().view(dtype)


@op("DecodeRaw(bytes: string) -> output: out_type", out_type=_RAW, little_endian="bool = True")
class DecodeRaw:
    """The bytes of each string, all of one length, as numbers along a new last dimension."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, bytes: TensorShape) -> TensorShape:
        return bytes.concatenate(TensorShape.of((None,)))

    def compute(self, k: KernelContext, bytes: Any) -> Any:
        items, size = bytes.reshape(-1).tolist(), k.dtype.itemsize
        length = len(items[0]) if items else 0
        for i, item in enumerate(items):
            if len(item) != length:
                raise InvalidArgumentError(
                    None,
                    None,
                    "DecodeRaw requires input strings to all be the same size, but element "
                    f"{i} has size {len(item)} != {length}",
                )
        if length % size:
            raise InvalidArgumentError(
                None,
                None,
                f"Input to DecodeRaw has length {length} that is not a multiple of {size}, the size "
                f"of {k.output_dtypes[0].name}",
            )
        return _from_bytes(b"".join(items), k.dtype, k.attrs["little_endian"]).reshape(
            (*bytes.shape, length // size)
        )

    samples = [
        sample(text(b"\x01\x00\x02\x00", b"\x03\x00\x04\x00"), out_type="int16"),
        sample(text("ab").reshape(()), out_type="uint8"),
        sample(text(b"\x01\x00\x02\x00"), out_type="int16", little_endian=False),
        sample(text(b"\x01\x00"), out_type="bool"),
        sample(text("", ""), out_type="float"),
        sample(text(), out_type="int32"),
    ]


@op(
    "DecodePaddedRaw(input_bytes: string, fixed_length: int32) -> output: out_type",
    little_endian="bool = True",
    out_type=(half, float32, float64, int32, uint16, uint8, int16, int8, int64, bfloat16),
)
class DecodePaddedRaw:
    """The first `fixed_length` bytes of each string, filled up with zeros, as numbers along a new last
    dimension."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input_bytes: TensorShape, fixed_length: TensorShape) -> TensorShape:
        n = s.value(1)
        size = s.attrs["out_type"].np.itemsize
        return input_bytes.concatenate(TensorShape.of((None if n is None else int(n) // size,)))

    def compute(self, k: KernelContext, input_bytes: Any, fixed_length: Any) -> Any:
        n, size = int(fixed_length), k.dtype.itemsize
        if n <= 0 or n % size:
            raise InvalidArgumentError(
                None,
                None,
                f"fixed_length ({n}) must be positive and a multiple of {size}, the size of "
                f"{k.output_dtypes[0].name}",
            )
        joined = b"".join([item[:n].ljust(n, b"\0") for item in input_bytes.reshape(-1).tolist()])
        return _from_bytes(joined, k.dtype, k.attrs["little_endian"]).reshape((*input_bytes.shape, n // size))

    samples = [
        sample(text("ab", "abcdef"), 4, out_type="int16"),
        sample(text("abcd"), 4, out_type="int16", little_endian=False),
    ]


@op("EncodeBase64(input: string) -> output: string", pad="bool = False")
class EncodeBase64:
    """Each string in web-safe base64, with '=' at its end where `pad`."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        pads, encode = k.attrs["pad"], base64.urlsafe_b64encode
        return lambda input: map_text(encode if pads else lambda item: encode(item).rstrip(b"="), input)

    samples = [sample(text("a", "ab", "abc", "", b"\xff\xfe\xfd")), sample(text("a", "ab"), pad=True)]


_BASE64 = re.compile(rb"([A-Za-z0-9_-]*)(={0,2})")


def _from_base64(item: bytes) -> bytes:
    found = _BASE64.fullmatch(item)
    if not found or (found[2] and len(item) % 4):
        raise InvalidArgumentError(
            None,
            None,
            f"Invalid character found in base64: {item!r} (the web-safe alphabet has '-' and '_', and "
            "'=' only at the end)",
        )
    if len(found[1]) % 4 == 1:
        raise InvalidArgumentError(None, None, f"Base64 string length cannot be 1 modulo 4: {item!r}")
    return base64.urlsafe_b64decode(found[1] + b"=" * (-len(found[1]) % 4))


@op("DecodeBase64(input: string) -> output: string")
class DecodeBase64:
    """Each string from web-safe base64, with or without '=' at its end."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, input: TensorShape) -> TensorShape:
        return input

    def compute(self, k: KernelContext, input: Any) -> Any:
        return map_text(_from_base64, input)

    samples = [sample(text("YQ", "YWI=", "_-8", "")), sample(text("YWJj").reshape(()))]


def csv_fields(record: bytes, delimiter: bytes, quotes: bool) -> list[bytes]:
    """The fields of a CSV record by RFC 4180.

    Raises:
      InvalidArgumentError: a quote or line end stands where none may.
    """
    fields: list[bytes] = []
    if not record:
        return fields
    at, n = 0, len(record)
    while True:
        if quotes and record[at : at + 1] == b'"':
            parts, at = [], at + 1
            while True:
                end = record.find(b'"', at)
                if end < 0:
                    raise InvalidArgumentError(
                        None, None, f"Quoted field has to end with quote followed by delim or end: {record!r}"
                    )
                parts.append(record[at:end])
                at = end + 1
                if record[at : at + 1] != b'"':
                    break
                parts.append(b'"')
                at += 1
            if at < n and record[at : at + 1] != delimiter:
                raise InvalidArgumentError(
                    None, None, f"Quote inside a string has to be escaped by another quote: {record!r}"
                )
            fields.append(b"".join(parts))
        else:
            end = record.find(delimiter, at)
            end = n if end < 0 else end
            field = record[at:end]
            if any(c in field for c in (b'"\n\r' if quotes else b"\n\r")):
                raise InvalidArgumentError(
                    None, None, f"Unquoted fields cannot have quotes/CRLFs inside: {field!r}"
                )
            fields.append(field)
            at = end
        if at >= n:
            return fields
        at += 1
        if at == n:
            fields.append(b"")
            return fields


@op(
    "DecodeCSV(records: string, record_defaults: list(OUT_TYPE)) -> output: list(OUT_TYPE)",
    OUT_TYPE="list(type) in {float,double,int32,int64,string} >= 1",
    field_delim="string = ','",
    use_quote_delim="bool = True",
    na_value="string = ''",
    select_cols="list(int) = []",
)
class DecodeCSV:
    """The columns of CSV records, each of its default's dtype; an empty default makes its column required."""

    cpu_only = True

    def shape(
        self, s: ShapeContext, records: TensorShape, record_defaults: list[TensorShape]
    ) -> list[TensorShape]:
        for i, default in enumerate(record_defaults):
            if default.sizes is not None and (
                len(default.sizes) > 1 or (default.sizes and (default.sizes[0] or 0) > 1)
            ):
                raise ValueError(
                    "Shape of a default must be a length-0 or length-1 vector, or a scalar, not "
                    f"{default} (record_defaults"
                    f"[{i}])"
                )
        return [records] * len(record_defaults)

    def compute(self, k: KernelContext, records: Any, *defaults: Any) -> tuple[Any, ...]:
        attrs, n = k.attrs, len(defaults)
        delimiter, chosen = attrs["field_delim"], attrs["select_cols"]
        if len(delimiter) != 1:
            raise ValueError(f"field_delim should be only 1 char, not {delimiter!r}")
        if chosen and (len(chosen) != n or any(b <= a for a, b in zip(chosen, chosen[1:])) or chosen[0] < 0):
            raise ValueError(
                f"select_cols {chosen} must be strictly increasing column numbers, one for each of the "
                f"{n} defaults"
            )
        columns: list[list[Any]] = [[] for _ in range(n)]
        for i, record in enumerate(records.reshape(-1).tolist()):
            fields = csv_fields(record, delimiter, attrs["use_quote_delim"])
            if chosen:
                if len(fields) <= chosen[-1]:
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"Expect at least {chosen[-1] + 1} fields but have {len(fields)} in record {i}",
                    )
                fields = [fields[c] for c in chosen]
            elif len(fields) != n:
                raise InvalidArgumentError(
                    None, None, f"Expect {n} fields but have {len(fields)} in record {i}"
                )
            for j, (field, default, dtype) in enumerate(zip(fields, defaults, k.output_dtypes)):
                columns[j].append(self._value(field, default, dtype, attrs["na_value"], i, j))
        return tuple(
            [
                text_array(c, records.shape) if d is string else np.array(c, d.np).reshape(records.shape)
                for c, d in zip(columns, k.output_dtypes)
            ]
        )

    @staticmethod
    def _value(field: bytes, default: Any, dtype: DType, na_value: bytes, record: int, column: int) -> Any:
        if not field or field == na_value:
            if default.size == 0:
                raise InvalidArgumentError(
                    None, None, f"Field {column} is required but missing in record {record}!"
                )
            return default.reshape(-1)[0]
        value = field if dtype is string else parse_number(field, dtype)
        if value is None:
            raise InvalidArgumentError(
                None,
                None,
                f"Field {column} in record {record} is not a valid {dtype.name}: "
                f"{field.decode(errors='backslashreplace')}",
            )
        return value

    samples = [
        sample(
            text("1,2.5,abc", '2,3,"a,b""c"', ",,", '3,4,"x\ny"'),
            [np.array([7], np.int32), np.array([1.5], np.float32), text("d")],
        ),
        sample(text(" 5 |x ", "6|"), [np.array([7]), text("d")], field_delim="|"),
        sample(text("NA,1"), [np.array([1], np.int32), np.array(2.0)], na_value="NA"),
        sample(text("1,2,3,4"), [np.array([0], np.int32), np.array([0], np.int32)], select_cols=[0, 2]),
        sample(text('1,"2').reshape(1, 1), [np.array([0], np.int32), text("")], use_quote_delim=False),
    ]


@op("SerializeTensor(tensor: T) -> serialized: string")
class SerializeTensor:
    """A TensorProto of `tensor`, as a string."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, tensor: TensorShape) -> TensorShape:
        return TensorShape.of(())

    def compute(self, k: KernelContext, tensor: Any) -> Any:
        return scalar_text(to_proto(tensor, k.input_dtypes[0]).SerializeToString(deterministic=True))

    samples = [sample(normal(2, 3)), sample(text("a", "bc"))]


@op("ParseTensor(serialized: string) -> output: out_type", out_type="type")
class ParseTensor:
    """The tensor of a TensorProto in a string."""

    cpu_only = True
    not_differentiable = True

    def shape(self, s: ShapeContext, serialized: TensorShape) -> TensorShape:
        serialized.with_rank(0)
        return UNKNOWN

    def compute(self, k: KernelContext, serialized: Any) -> Any:
        from google.protobuf.message import DecodeError

        from graphrt.protos import tensor_pb2

        try:
            proto = tensor_pb2.TensorProto.FromString(serialized.item())
        except DecodeError as error:
            raise InvalidArgumentError(
                None, None, f"could not parse the string as a TensorProto: {error}"
            ) from None
        dtype = as_dtype(proto.dtype) if proto.dtype else None
        if dtype is not k.output_dtypes[0]:
            raise InvalidArgumentError(
                None,
                None,
                f"Type mismatch between parsed tensor ({dtype.name if dtype else 'none'}) and dtype "
                f"({k.output_dtypes[0].name})",
            )
        return to_array(proto)

    samples = [
        sample(
            Later(lambda: scalar_text(to_proto(np.array([[1, 2]], np.int32)).SerializeToString())),
            out_type="int32",
        ),
        sample(Later(lambda: scalar_text(to_proto(text("a", "bc")).SerializeToString())), out_type="string"),
    ]
