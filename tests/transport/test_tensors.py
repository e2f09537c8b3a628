"""Tensors as bytes: what is written by hand is what protobuf writes and reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.tensor_proto import to_array, to_proto
from graphrt.protos import master_pb2, tensor_pb2, worker_pb2
from graphrt.transport import tensors

_DTYPES = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.complex64, np.float16]
_ARRAYS = st.sampled_from(_DTYPES).flatmap(
    lambda d: arrays.arrays(d, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


def joined(buffers):
    return b"".join(buffers)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@given(_ARRAYS)
def test_a_tensor_written_by_hand_is_a_tensor_proto(array):
    assert same(to_array(tensor_pb2.TensorProto.FromString(joined(tensors.tensor_proto(array)))), array)


@given(_ARRAYS)
def test_a_tensor_proto_is_read_by_hand(array):
    assert same(tensors.read_tensor_proto(to_proto(array).SerializeToString()), array)
    assert same(tensors.read_tensor_proto(joined(tensors.tensor_proto(array))), array)


@given(_ARRAYS)
def test_pack_and_unpack_are_each_others_inverse(array):
    made, is_dead = tensors.unpack(memoryview(joined(tensors.pack(array))))
    assert not is_dead and same(made, array) and made.flags.writeable


def test_unpack_takes_memory_that_it_may_write_as_the_array_itself():
    buffer = bytearray(joined(tensors.pack(np.arange(6.0))))
    made, _ = tensors.unpack(memoryview(buffer))
    made[0] = 5.0
    assert tensors.unpack(memoryview(buffer))[0][0] == 5.0


def test_strings_and_the_dead_travel():
    text = np.array([[b"a", b""], [b"\x00\xff", "é".encode()]], object)
    made, _ = tensors.unpack(joined(tensors.pack(text)))
    assert made.tolist() == text.tolist()
    assert tensors.unpack(joined(tensors.pack(None, True))) == (None, True)
    assert tensors.read_tensor_proto(joined(tensors.tensor_proto(text))).tolist() == text.tolist()


def test_an_array_that_is_not_contiguous_travels_as_its_values():
    array = np.arange(24).reshape(4, 6)[::2, ::3]
    assert same(tensors.unpack(joined(tensors.pack(array)))[0], np.ascontiguousarray(array))


@given(_ARRAYS, st.booleans())
def test_a_recv_response_is_protobufs(array, is_dead):
    made = worker_pb2.RecvTensorResponse.FromString(joined(tensors.recv_response(array, is_dead)))
    assert made.is_dead == is_dead
    if not is_dead:
        assert same(to_array(made.tensor), array)
    # Another writer's field order: send_start_micros first.
    theirs = tensors.int_field(3, 12345) + made.SerializeToString()
    value, dead = tensors.read_recv_response(theirs)
    assert dead == is_dead and (is_dead or same(value, array))


def test_feeds_are_taken_out_of_a_request_before_it_is_parsed():
    request = master_pb2.RunStepRequest(session_handle="s", fetch=["y:0"], request_id=-5)
    buffers = [
        request.SerializeToString(),
        *tensors.named_tensors(2, [b"a:0", b"b:0"], [np.ones(3), np.float32(2)]),
    ]
    found, rest = tensors.split(joined(buffers), 2)
    assert master_pb2.RunStepRequest.FromString(rest) == request
    named = dict(map(tensors.read_named_tensor, found))
    assert named["a:0"].tolist() == [1, 1, 1] and named["b:0"] == 2
    whole = master_pb2.RunStepRequest.FromString(joined(buffers))
    assert [f.name for f in whole.feed] == ["a:0", "b:0"]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 31, (1 << 63) - 1, -1])
def test_varints(number):
    made = tensors.varint(number)
    assert tensors.read_varint(made, 0) == (number % (1 << 64), len(made))


@given(st.binary(max_size=60))
def test_malformed_messages_are_errors_of_the_sender(message):
    for read in (
        tensors.read_tensor_proto,
        tensors.read_recv_response,
        tensors.read_named_tensor,
        lambda m: tensors.split(m, 2),
    ):
        try:
            read(message)
        except InvalidArgumentError:
            pass
