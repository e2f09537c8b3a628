"""Sorted tables, varints and ordered codes."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.core.errors import DataLossError
from graphrt.formats import varints
from graphrt.formats.crc32c import crc32c, masked, unmasked
from graphrt.formats.ordered_code import encode_number, encode_signed, encode_string
from graphrt.formats.table import TableReader, TableWriter

ENTRIES = st.dictionaries(st.binary(max_size=40), st.binary(max_size=2000), max_size=200)


def table(entries):
    file = io.BytesIO()
    writer = TableWriter(file)
    for key in sorted(entries):
        writer.add(key, entries[key])
    writer.finish()
    return file


@settings(max_examples=50)
@given(ENTRIES)
def test_a_table_gives_back_what_was_put_in(entries):
    reader = TableReader(table(entries), "t")
    assert list(reader) == sorted(entries.items())
    for key, value in entries.items():
        assert reader.get(key) == value
        assert reader.get(key + b"\0") == entries.get(key + b"\0")
    assert reader.get(b"\xff" * 50) is None


def test_entries_span_several_blocks():
    entries = {b"key%06d" % i: b"v" * 100 for i in range(10_000)}
    reader = TableReader(table(entries), "t")
    assert len(reader._index) > 3
    assert list(reader) == sorted(entries.items())
    assert reader.get(b"key007777") == b"v" * 100 and reader.get(b"key0077775") is None


def test_keys_come_in_order():
    writer = TableWriter(io.BytesIO())
    writer.add(b"b", b"")
    for key in (b"b", b"a"):
        with pytest.raises(ValueError, match="does not come after"):
            writer.add(key, b"")


@settings(max_examples=300)
@given(at=st.integers(0, 10**6), by=st.integers(1, 255))
def test_a_changed_byte_is_noticed_where_it_matters(at, by):
    entries = {b"some key %d" % i: b"value %d" % i for i in range(50)}
    content = bytearray(table(entries).getvalue())
    content[at % len(content)] ^= by
    try:
        assert dict(TableReader(io.BytesIO(content), "t")) == entries
    except DataLossError:
        pass


@given(st.binary(max_size=100))
def test_any_block_is_entries_or_data_loss(content):
    reader = TableReader(table({}), "t")
    try:
        list(reader._entries(content, 0))
    except DataLossError:
        pass


@given(st.integers(0, 2**64 - 1))
def test_varints_come_back(value):
    assert varints.decode(b"x" + varints.encode(value) + b"x", 1) == (value, 1 + len(varints.encode(value)))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_varint_or_a_value_error(content):
    try:
        value, at = varints.decode(content, 0)
    except ValueError:
        return
    assert 0 <= value < 2**64 and 0 < at <= len(content)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2))
def test_ordered_codes_of_numbers_compare_as_they_do(pair):
    a, b = pair
    assert (encode_signed(a) < encode_signed(b)) == (a < b)
    assert (encode_number(abs(a)) < encode_number(abs(b))) == (abs(a) < abs(b))


@given(st.binary(), st.binary())
def test_ordered_codes_of_strings_compare_as_they_do(a, b):
    assert (encode_string(a) < encode_string(b)) == (a < b)


@given(st.binary(), st.binary())
def test_a_checksum_goes_on_where_it_ended(a, b):
    assert crc32c(b, crc32c(a)) == crc32c(bytearray(a + b)) == crc32c(memoryview(a + b))
    assert unmasked(masked(crc32c(a))) == crc32c(a)


def test_the_checksum_is_crc32c():
    assert crc32c(b"123456789") == 0xE3069283
