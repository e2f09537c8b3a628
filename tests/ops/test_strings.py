"""tf.strings and the text ops: TensorFlow's nodes, values and refusals."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import graphrt
from graphrt.ops.string_hashes import fingerprint64, siphash
from graphrt.ops.string_regex import compiled, replacer
from tests.same_graph import assert_same_nodes, assert_same_values

WORDS = ["hello", "", "aé語", "Hello World"]


def words(tf: Any) -> Any:
    return tf.constant(WORDS, name="words")


BUILDS = {
    "join": lambda tf: tf.strings.join([words(tf), "x"], separator="-"),
    "string_join": lambda tf: tf.string_join([["a"], ["b"]]),
    "reduce_join": lambda tf: tf.reduce_join([["a", "b"], ["c", "d"]]),
    "reduce_join axis": lambda tf: tf.strings.reduce_join([["a", "b"], ["c", "d"]], 0, separator="+"),
    "reduce_join keep_dims": lambda tf: tf.reduce_join([["a", "b"]], reduction_indices=[1], keep_dims=True),
    "length": lambda tf: tf.strings.length(words(tf)),
    "length of characters": lambda tf: tf.strings.length(words(tf), unit="UTF8_CHAR"),
    "substr": lambda tf: tf.substr(["hello", "world"], 1, 3),
    "strings.substr": lambda tf: tf.strings.substr(["aé語b"], [1], [2], unit="UTF8_CHAR"),
    "lower": lambda tf: tf.strings.lower(words(tf)),
    "upper": lambda tf: tf.strings.upper(words(tf), encoding="utf-8", name="up"),
    "strip": lambda tf: tf.strings.strip([" a ", "\tb\n"]),
    "string_strip": lambda tf: tf.string_strip([" a "]),
    "regex_replace": lambda tf: tf.regex_replace(words(tf), "l+", "L"),
    "regex_replace by tensors": lambda tf: tf.strings.regex_replace(words(tf), tf.constant("l"), "L"),
    "regex_full_match": lambda tf: tf.strings.regex_full_match(words(tf), "h.*"),
    "to_number": lambda tf: tf.string_to_number(["1.5", "-2"]),
    "to_number ints": lambda tf: tf.strings.to_number(["15", "-2"], tf.int64),
    "as_string": lambda tf: tf.as_string([1.5, 2.0], precision=2),
    "strings.as_string": lambda tf: tf.strings.as_string([1, 20], width=4, fill="0"),
    "to_hash_bucket": lambda tf: tf.string_to_hash_bucket(words(tf), 1000),
    "to_hash_bucket_fast": lambda tf: tf.strings.to_hash_bucket_fast(words(tf), 1000),
    "to_hash_bucket_strong": lambda tf: tf.string_to_hash_bucket_strong(words(tf), 1000, key=[1, 2]),
    "string_split": lambda tf: tf.string_split(["a b", "c"]),
    "string_split delimiter": lambda tf: tf.string_split(["a,b", ",c"], delimiter=",", skip_empty=False),
    "split": lambda tf: tf.strings.split(["a b", "c  d"], result_type="SparseTensor"),
    "split sep": lambda tf: tf.strings.split(["a,b,c"], sep=",", maxsplit=1),
    "split a scalar": lambda tf: tf.strings.split("a b"),
    "format": lambda tf: tf.strings.format("x = {}", tf.range(10)),
    "format several": lambda tf: tf.strings.format("{} and {}", [tf.constant([1.5]), tf.constant("s")]),
    "unsorted_segment_join": lambda tf: tf.strings.unsorted_segment_join(
        ["a", "b", "c"], [1, 0, 1], 2, separator=","
    ),
    "decode_raw": lambda tf: tf.decode_raw(["ab", "cd"], tf.uint8),
    "encode_base64": lambda tf: tf.encode_base64(["a", "bc"], pad=True),
    "decode_base64": lambda tf: tf.decode_base64(["YQ", "YmM="]),
    "decode_csv": lambda tf: tf.decode_csv(["1,2.5,x", "3,,y"], [[0], [1.0], [""]]),
    "decode_csv columns": lambda tf: tf.decode_csv(
        ["1;2;3"], [[0], [0]], field_delim=";", select_cols=[0, 2]
    ),
}


def _parts(tf: Any, made: Any) -> Any:
    return [made.indices, made.values, made.dense_shape] if hasattr(made, "dense_shape") else made


@pytest.mark.parametrize("what", BUILDS)
def test_text_functions_are_tensorflows(what: str, tf: Any) -> None:
    assert_same_nodes(tf, BUILDS[what])
    assert_same_values(tf, lambda m: _parts(m, BUILDS[what](m)))


BAD = {
    "number": (lambda: graphrt.string_to_number(["1", "x1"]), "could not correctly convert string: x1"),
    "number range": (lambda: graphrt.string_to_number(["3000000000"], graphrt.int32), "3000000000"),
    "substr": (lambda: graphrt.substr(["abc"], 5, 1), "pos 5 out of range for string b'abc' at index 0"),
    "raw lengths": (lambda: graphrt.decode_raw(["ab", "a"], graphrt.uint8), "same size"),
    "raw size": (lambda: graphrt.decode_raw(["abc"], graphrt.int16), "multiple of 2"),
    "base64": (lambda: graphrt.decode_base64(["a*"]), "Invalid character"),
    "csv fields": (lambda: graphrt.decode_csv(["1,2"], [[0]]), "Expect 1 fields but have 2 in record 0"),
    "csv number": (lambda: graphrt.decode_csv(["x"], [[0]]), "Field 0 in record 0 is not a valid int32: x"),
    "csv required": (
        lambda: graphrt.decode_csv([",1"], [np.zeros(0, np.int32), [0]]),
        "Field 0 is required but missing",
    ),
    "csv quote": (lambda: graphrt.decode_csv(['a"b'], [[""]]), "Unquoted fields cannot have quotes"),
    "csv open quote": (lambda: graphrt.decode_csv(['"ab'], [[""]]), "has to end with quote"),
    "lookahead": (lambda: graphrt.regex_replace(["a"], "(?=a)", ""), r"invalid perl operator: \(\?="),
    "back reference": (lambda: graphrt.regex_replace(["a"], r"(a)\1", ""), r"invalid escape sequence: \\1"),
    "parenthesis": (lambda: graphrt.regex_replace(["a"], "(", ""), "Invalid pattern"),
    "group": (lambda: graphrt.regex_replace(["a"], "(a)", r"\2"), "refers to group 2"),
    "join": (
        lambda: graphrt.string_join([graphrt.placeholder_with_default(["a"], None), ["b", "c"]]),
        "shapes do not match",
    ),
    "precision": (lambda: graphrt.as_string([1], precision=2), "precision not supported for datatype int32"),
}


@pytest.mark.parametrize("what", BAD)
def test_text_that_does_not_fit_is_an_error_that_says_why(what: str) -> None:
    build, message = BAD[what]
    with graphrt.Session() as session, pytest.raises(graphrt.errors.InvalidArgumentError, match=message):
        session.run(build())


def test_ragged_results_are_refused() -> None:
    with pytest.raises(ValueError, match="no ragged tensors"):
        graphrt.strings.split(["a b"], result_type="RaggedTensor")


@pytest.mark.parametrize("n", [*range(0, 20), 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000])
def test_fingerprints_of_every_length_are_tensorflows(n: int, tf: Any) -> None:
    item = bytes((i * 37 + n) % 256 for i in range(n))
    buckets = 2**61 - 1
    theirs = tf.strings.to_hash_bucket_fast(tf.constant(item), buckets).numpy()
    assert fingerprint64(item) % buckets == theirs


def test_siphash_gives_the_published_value() -> None:
    key = int.from_bytes(bytes(range(8)), "little"), int.from_bytes(bytes(range(8, 16)), "little")
    assert siphash(bytes(range(15)), key) == 0xA129CA6149BE45E5


PATTERNS = [
    ("a|b", "[&]"),
    ("(?i)HELLO", "x"),
    (r"\bo", "0"),
    (r"[^\w\s]", "_"),
    (r"\x{e9}", "e"),
    (r"\p{L}+", "L"),
    ("[[:upper:][:digit:]]", "U"),
    (r"(?s)a.b", "-"),
    (r"(?m)^b", "c"),
    ("x{2,3}", "y"),
    ("(a+?)", r"<\1>"),
    ("$", "!"),
    ("^", "!"),
    ("(a)|(b)", r"[\1\2]"),
    (r"\.", r"\\."),
    (r"[\]\-a]", "#"),
    ("(?:ab)+", "."),
    (r"\Q.*\E", "q"),
    ("é*", "-"),
    (r"[a\d]", "#"),
    (r"\D+", "n"),
    (r"\W", "w"),
    (r"[\W_]", "w"),
    ("(?P<first>a)(?P<second>b)", r"\2\1"),
    (r"\t", "T"),
    (r"\141", "o"),
]
TEXTS = [
    "",
    "ab",
    "Hello hello",
    "aXbé1",
    "xxxxx",
    "a\nb\nbb",
    "a.b.*c",
    "-]a",
    "tab\there",
    "Größe 42",
    "aab_ab",
]


@pytest.mark.parametrize("pattern, rewrite", PATTERNS)
def test_patterns_replace_as_re2_does(pattern: str, rewrite: str, tf: Any) -> None:
    for everywhere in (True, False):
        theirs = tf.strings.regex_replace(TEXTS, pattern, rewrite, replace_global=everywhere).numpy().tolist()
        replace = replacer(pattern.encode(), rewrite.encode(), everywhere)
        assert [replace(t.encode()) for t in TEXTS] == theirs


def test_invalid_utf8_passes_through_a_replacement() -> None:
    assert replacer(b"a", b"b", True)(b"\xffa\x80") == b"\xffb\x80"
    assert compiled(b"a").pattern == "a"


def test_print_shows_its_tensors_the_first_times_only(capfd: pytest.CaptureFixture[str]) -> None:
    x = graphrt.placeholder("float32", [2])
    y = graphrt.Print(x, [x, graphrt.constant([[1, 2], [3, 4]]), graphrt.constant("s")], "seen ", first_n=2)
    with graphrt.Session() as session:
        for i in range(3):
            np.testing.assert_array_equal(session.run(y, {x: [i, 0.5]}), [i, 0.5])
    shown = "seen [0 0.5][[1 2][3...]...][s]\nseen [1 0.5][[1 2][3...]...][s]\n"
    assert capfd.readouterr().err == shown


def test_print_formats_structures_of_tensors(capfd: pytest.CaptureFixture[str], tf: Any) -> None:
    def lines(m: Any) -> str:
        with m.Graph().as_default():
            shown = [
                m.print("x:", m.constant([1.5, 2.0]), {"a": m.constant(1)}, output_stream=sys.stdout),
                m.print(m.constant("text"), output_stream=sys.stdout),
                m.print([m.constant(1), "two"], 3, sep="|", end="<end>\n", output_stream=sys.stdout),
                m.print(m.range(10), summarize=2, output_stream=sys.stdout),
            ]
            with m.Session() as session:
                for op in shown:
                    session.run(op)
        return capfd.readouterr().out

    assert lines(graphrt) == lines(tf.compat.v1)


def test_print_to_a_file_appends(tmp_path: Any) -> None:
    path = tmp_path / "out.txt"
    op = graphrt.print("n", graphrt.constant(7), output_stream=f"file://{path}")
    with graphrt.Session() as session:
        session.run(op)
        session.run(op)
    assert path.read_text() == "n 7\nn 7\n"


def test_a_print_to_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="Unsupported output stream"):
        graphrt.print("x", output_stream="elsewhere")
