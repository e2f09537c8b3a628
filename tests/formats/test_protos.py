"""graphrt's messages are TensorFlow's: read off the descriptors inside TensorFlow's own libraries."""

import ast
import importlib
import importlib.util
import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from graphrt.protos import graph_pb2, types_pb2

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "protos" / "graphrt").glob("*.proto"))
COMPATIBLE_WITH = re.compile(r"// Wire compatible with (\S+\.proto)\.$", re.MULTILINE)
FIRST_OWN_FIELD = 20000  # fields that graphrt adds to TensorFlow's messages
LARGEST_DESCRIPTOR = 1 << 17
NAME, SYNTAX = 1, 12  # the first and the last field of a FileDescriptorProto


def tensorflow_name(source: Path) -> str | None:
    """The TensorFlow file that a .proto file says it is compatible with; None for graphrt's own files."""
    match = COMPATIBLE_WITH.search(source.read_text())
    return match and match[1]


def varint(buffer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (buffer[at] & 0x7F) << shift
        shift += 7
        at += 1
        if buffer[at - 1] < 0x80:
            return value, at


def descriptor_at(buffer: bytes) -> descriptor_pb2.FileDescriptorProto | None:
    """The serialized file descriptor that `buffer` starts with; None if it is something else.

    Nothing marks a descriptor's end in a library, but its fields are written in order: it ends after the
    syntax, which proto2 files leave out, or where the field numbers stop rising.
    """
    at = end = number = 0
    while number != SYNTAX:
        try:
            key, at = varint(buffer, at)
            length_or_value, at = varint(buffer, at)
        except IndexError:
            break
        previous, number, wire_type = number, key >> 3, key & 7
        rises = previous <= number <= SYNTAX and (number > NAME or previous == 0)
        if not rises or wire_type not in (0, 2):
            break
        at += length_or_value if wire_type == 2 else 0
        end = at
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(buffer[:end])
    except DecodeError:
        return None


@pytest.fixture(scope="module")
def tensorflow_files() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """TensorFlow's file descriptors by name, from its libraries: Python modules exist for some only."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None:
        pytest.skip("needs TensorFlow's libraries")
    wanted = {name.encode() for name in map(tensorflow_name, SOURCES) if name}
    start = re.compile(rb"\x0a[\x10-\x7f]((?:tensorflow/core|xla/tsl)/[a-z/_]+\.proto)\x12")
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for library in sorted(Path(spec.origin).parent.glob("libtensorflow_*")):
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for match in start.finditer(content):
                if match[1] in wanted and match[1].decode() not in found:
                    descriptor = descriptor_at(content[match.start() : match.start() + LARGEST_DESCRIPTOR])
                    if descriptor is not None:
                        found[match[1].decode()] = descriptor
    # A file that no library has: read off the text of its Python module.
    for name in {name.decode() for name in wanted} - set(found):
        module = Path(spec.origin).parent.parent / name.replace(".proto", "_pb2.py")
        serialized = re.search(r"AddSerializedFile\((b'.*')\)", module.read_text())
        assert serialized is not None, module
        found[name] = descriptor_pb2.FileDescriptorProto.FromString(ast.literal_eval(serialized[1]))
    return found


def declarations(file: descriptor_pb2.FileDescriptorProto) -> dict[str, dict]:
    """Every message (fields by number) and enum (numbers by name) of a file, by its name in the package."""
    found: dict[str, dict] = {}

    def add_message(message: descriptor_pb2.DescriptorProto, scope: str) -> None:
        name = scope + message.name
        found[name] = {field.number: describe(field, message) for field in message.field}
        for nested in message.nested_type:
            add_message(nested, name + ".")
        for enum in message.enum_type:
            add_enum(enum, name + ".")

    def add_enum(enum: descriptor_pb2.EnumDescriptorProto, scope: str) -> None:
        found[scope + enum.name] = {value.name: value.number for value in enum.value}

    def describe(field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto) -> dict:
        return {
            "name": field.name,
            "type": field.type,
            "label": field.label,
            "type_name": field.type_name.replace(".tensorflow.", ".graphrt."),
            "packed": field.options.packed if field.options.HasField("packed") else file.syntax == "proto3",
            "oneof": message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None,
            "explicit presence": field.proto3_optional,
        }

    for message in file.message_type:
        add_message(message, "")
    for enum in file.enum_type:
        add_enum(enum, "")
    return found


@pytest.mark.parametrize("source", [s for s in SOURCES if tensorflow_name(s)], ids=lambda source: source.stem)
def test_every_field_has_tensorflows_name_number_and_type(source: Path, tensorflow_files):
    theirs = tensorflow_files[tensorflow_name(source)]
    ours = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(f"graphrt.protos.{source.stem}_pb2").DESCRIPTOR.CopyToProto(ours)

    assert ours.syntax == theirs.syntax
    assert ours.package == theirs.package.replace("tensorflow", "graphrt", 1)
    ours_by_name = declarations(ours)
    for name, declared in declarations(theirs).items():
        shared = {key: value for key, value in ours_by_name[name].items() if key in declared}
        assert shared == declared, name
        own = ours_by_name[name].keys() - declared.keys()
        assert all(isinstance(number, int) and number >= FIRST_OWN_FIELD for number in own), (name, own)


def test_generated_modules_and_sources_are_the_same_set():
    generated = {path.name.removesuffix("_pb2.py") for path in (ROOT / "graphrt" / "protos").glob("*_pb2.py")}
    assert generated == {source.stem for source in SOURCES}


def test_importing_the_package_does_not_load_protobuf():
    program = "import sys, graphrt.protos; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0


def test_a_graph_made_by_tensorflow_reads_the_same_and_goes_back_unchanged(tf):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        with tf.device("/job:worker/task:1/cpu:0"):
            w = tf.compat.v1.get_variable("w", [3, 2], use_resource=False)
            y = tf.matmul(x, w, name="y")
        tf.cond(tf.reduce_sum(y) > 0, lambda: y + 1.0, lambda: tf.constant([[1.0, -0.0]]), name="branch")
        tf.constant([b"\xff\x00", "ä".encode()], name="strings")
        tf.constant([1.5, float("nan"), float("-inf")], dtype=tf.bfloat16, name="halves")
    theirs = graph.as_graph_def()

    ours = graph_pb2.GraphDef.FromString(theirs.SerializeToString(deterministic=True))

    assert [(n.name, n.op, n.device, list(n.input)) for n in ours.node] == [
        (n.name, n.op, n.device, list(n.input)) for n in theirs.node
    ]
    nodes = {node.name: node for node in ours.node}
    assert nodes["x"].attr["shape"].shape.dim[0].size == -1
    assert nodes["w"].attr["dtype"].type == types_pb2.DT_FLOAT
    assert nodes["y"].device == "/job:worker/task:1/device:CPU:0"
    assert nodes["halves"].attr["value"].tensor.dtype == types_pb2.DT_BFLOAT16
    assert ours.versions.producer == theirs.versions.producer
    assert len(ours.library.function) == len(theirs.library.function) > 0
    back = type(theirs).FromString(ours.SerializeToString())
    assert back == theirs


def test_a_graph_made_here_is_accepted_by_tensorflow(tf):
    ours = graph_pb2.GraphDef()
    ours.versions.producer = 1882
    value = ours.node.add(name="value", op="Const")
    value.attr["dtype"].type = types_pb2.DT_INT64
    value.attr["value"].tensor.dtype = types_pb2.DT_INT64
    value.attr["value"].tensor.tensor_shape.dim.add(size=3)
    value.attr["value"].tensor.int64_val.extend([-1, 0, 2**62])
    double = ours.node.add(name="double", op="AddV2", input=["value", "value"])
    double.attr["T"].type = types_pb2.DT_INT64

    theirs = tf.compat.v1.GraphDef.FromString(ours.SerializeToString())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(theirs, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run("double:0").tolist() == [-2, 0, 2**63 - 2**64]
