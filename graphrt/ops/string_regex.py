"""Regular expressions in RE2's syntax, which programs write, run by Python's `re`.

`compiled` translates what the two spell differently and refuses what RE2 does not have (lookaround, back
references), so that a pattern means the same here as in TensorFlow.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from graphrt.core.errors import InvalidArgumentError
from graphrt.core.registry import KernelContext, ShapeContext, op
from graphrt.core.samples import sample, text
from graphrt.core.shapes import TensorShape
from graphrt.ops.strings import map_text

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
# RE2's are of ASCII; as the inside of a character class.
_PERL = {
    "d": "0-9",
    "D": "\\x00-/:-\\U0010ffff",
    "w": "0-9A-Za-z_",
    "W": "\\x00-/:-@\\[-^`{-\\U0010ffff",
    "s": "\\t\\n\\f\\r ",
    "S": "\\x00-\\x08\\x0b\\x0e-\\x1f!-\\U0010ffff",
}
_FLAGS = re.compile(r"\(\?([a-zA-Z-]+)\)")
_CATEGORY = re.compile(r"[pP](?:\{(\^?)(\w+)\}|(\w))")
_HEX = re.compile(r"x\{([0-9A-Fa-f]+)\}")
# One digit alone, other than 0, would be a back reference, which RE2 does not have.
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")


def _bad(pattern: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, f"Invalid pattern: {pattern}, error: {why}")


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    """The characters of a general category (L, Nd, ...), as the inside of a character class; '' for no such
    category."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)


class _Translator:
    """One pass over a pattern of RE2's."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.made = pattern, 0, []  # type: ignore[var-annotated]

    def fail(self, why: str) -> InvalidArgumentError:
        return _bad(self.pattern, why)

    def run(self) -> str:
        pattern = self.pattern
        prefix, multiline = "", False
        flags = _FLAGS.match(pattern)
        if flags:
            letters = flags[1]
            if set(letters) - set("ims"):
                raise self.fail(f"the flags {flags[0]} are not supported: i, m and s are")
            prefix, multiline, self.at = flags[0], "m" in letters, flags.end()
        while self.at < len(pattern):
            c = pattern[self.at]
            if c == "\\":
                self.escape(in_class=False)
            elif c == "[":
                self.character_class()
            elif c == "(":
                self.group()
            elif c == "$" and not multiline:
                # RE2's is the very end; Python's also stands before a last newline.
                self.made.append("\\Z")
                self.at += 1
            elif c in "*+?}" and pattern[self.at + 1 : self.at + 2] == "+":
                raise self.fail(f"bad repetition operator: {c}+")
            else:
                self.made.append(c)
                self.at += 1
        return prefix + "".join(self.made)

    def group(self) -> None:
        rest = self.pattern[self.at :]
        if rest.startswith("(?") and not rest.startswith(("(?:", "(?P<")):
            if re.match(r"\(\?<\w", rest):
                self.made.append("(?P<")
                self.at += 3
                return
            scoped = re.match(r"\(\?[ims-]+:", rest)
            if not scoped:
                if _FLAGS.match(rest):
                    raise self.fail(
                        f"flags are supported at the beginning, or as (?i:...), not {rest[:4]} inside"
                    )
                raise self.fail(f"invalid perl operator: {rest[:3]}")
            self.made.append(scoped[0])
            self.at += scoped.end()
            return
        self.made.append("(")
        self.at += 1

    def escape(self, in_class: bool) -> None:
        pattern, at = self.pattern, self.at + 1
        if at >= len(pattern):
            raise self.fail("trailing \\")
        c = pattern[at]
        category, hexadecimal = _CATEGORY.match(pattern, at), _HEX.match(pattern, at)
        octal = _OCTAL.match(pattern, at)
        if c == "Q" and not in_class:
            end = pattern.find("\\E", at)
            end = len(pattern) if end < 0 else end
            self.made.append(re.escape(pattern[at + 1 : end]))
            self.at = end + 2
            return
        if hexadecimal:
            self.made.append(f"\\U{int(hexadecimal[1], 16):08x}")
            self.at = hexadecimal.end()
            return
        if category:
            name = category[2] or category[3]
            inside = _category(name)
            if not inside:
                raise self.fail(
                    f"invalid character class range: \\{category[0]} (general categories are "
                    "supported, scripts not)"
                )
            negated = (c == "P") != (category[1] == "^")
            if in_class and negated:
                raise self.fail(f"\\{category[0]} inside [] is not supported")
            self.made.append(inside if in_class else f"[{'^' if negated else ''}{inside}]")
            self.at = category.end()
            return
        self.at = at + 1
        if c == "z" and not in_class:
            self.made.append("\\Z")
        elif c in _PERL:
            self.made.append(_PERL[c] if in_class else f"[{_PERL[c]}]")
        elif c in "bB" and not in_class:
            self.made.append(f"(?a:\\{c})")
        elif octal:
            self.made.append(f"\\x{int(octal[0], 8) & 0xFF:02x}")
            self.at = octal.end()
        elif c in "CXZ" or c.isdigit():
            raise self.fail(f"invalid escape sequence: \\{c}")
        elif c.isalnum() and ord(c) < 128:
            self.made.append("\\" + c)
        else:
            self.made.append(re.escape(c))

    def character_class(self) -> None:
        pattern, start = self.pattern, self.at
        self.made.append("[")
        self.at += 1
        if pattern[self.at : self.at + 1] == "^":
            self.made.append("^")
            self.at += 1
        first = self.at
        while self.at < len(pattern):
            c = pattern[self.at]
            if c == "]" and self.at > first:
                self.made.append("]")
                self.at += 1
                return
            named = re.match(r"\[:(\^?)(\w+):\]", pattern[self.at :])
            if named:
                if named[2] not in _POSIX or named[1]:
                    raise self.fail(f"invalid character class range: {named[0]}")
                self.made.append(_POSIX[named[2]])
                self.at += named.end()
            elif c == "\\":
                self.escape(in_class=True)
            else:
                # Python warns of what may become set operations.
                self.made.append("\\" + c if c in "[&|~" else c)
                self.at += 1
        raise self.fail(f"missing ]: {pattern[start:]}")


@lru_cache(maxsize=256)
def compiled(pattern: bytes) -> re.Pattern[str]:
    """Python's pattern of RE2's.

    Raises:
      InvalidArgumentError: RE2 would refuse it, or it uses what is not translated.
    """
    source = pattern.decode("utf-8", "surrogateescape")
    try:
        return re.compile(_Translator(source).run())
    except re.error as error:
        raise _bad(source, str(error)) from None


_REFERENCE = re.compile(r"\\(.?)", re.S)


def rewriter(rewrite: bytes, groups: int) -> Callable[[re.Match[str]], str]:
    """What replaces a match: \\1 to \\9 are groups, \\0 all of it, \\\\ a backslash."""
    source = rewrite.decode("utf-8", "surrogateescape")
    parts: list[str | int] = []
    at = 0
    for found in _REFERENCE.finditer(source):
        parts.append(source[at : found.start()])
        at = found.end()
        if found[1].isdigit():
            if int(found[1]) > groups:
                raise InvalidArgumentError(
                    None, None, f"rewrite {source!r} refers to group {found[1]}, and the pattern has {groups}"
                )
            parts.append(int(found[1]))
        elif found[1] == "\\":
            parts.append("\\")
        else:
            raise InvalidArgumentError(
                None, None, f"rewrite {source!r}: a backslash stands before a digit or a backslash"
            )
    parts.append(source[at:])
    return lambda match: "".join(p if isinstance(p, str) else match[p] or "" for p in parts)


def replacer(pattern: bytes, rewrite: bytes, everywhere: bool) -> Callable[[bytes], bytes]:
    """A function that replaces the first match, or all, in a string."""
    expression = compiled(pattern)
    written = rewriter(rewrite, expression.groups)

    def replace(item: bytes) -> bytes:
        source = item.decode("utf-8", "surrogateescape")
        made: list[str] = []
        at, last_end = 0, -1
        while at <= len(source):
            match = expression.search(source, at)
            if match is None:
                break
            made.append(source[at : match.start()])
            if match.start() == match.end() == last_end:
                # Right behind a match an empty one does not count.
                made.append(source[match.end() : match.end() + 1])
                at = match.end() + 1
                continue
            made.append(written(match))
            at = last_end = match.end()
            if not everywhere:
                break
        if last_end < 0:
            return item
        made.append(source[at:])
        return "".join(made).encode("utf-8", "surrogateescape")

    return replace


class _Replacing:
    """What both replacing ops share."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape, *scalars: TensorShape) -> TensorShape:
        for scalar in scalars:
            scalar.with_rank(0)
        return input


@op(
    "RegexReplace(input: string, pattern: string, rewrite: string) -> output: string",
    replace_global="bool = True",
)
class RegexReplace(_Replacing):
    """Each string with what `pattern` matches replaced by `rewrite`."""

    not_differentiable = True

    def compute(self, k: KernelContext, input: Any, pattern: Any, rewrite: Any) -> Any:
        return map_text(replacer(pattern.item(), rewrite.item(), k.attrs["replace_global"]), input)

    samples = [
        sample(text("hello", "x"), text("l").reshape(()), text("L").reshape(())),
        sample(text("hello"), text("l").reshape(()), text("L").reshape(()), replace_global=False),
    ]


@op(
    "StaticRegexReplace(input: string) -> output: string",
    pattern="string",
    rewrite="string",
    replace_global="bool = True",
)
class StaticRegexReplace(_Replacing):
    """Each string with what the attr `pattern` matches replaced by `rewrite`."""

    def bind(self, k: KernelContext) -> Callable[..., Any]:
        replace = replacer(k.attrs["pattern"], k.attrs["rewrite"], k.attrs["replace_global"])
        return lambda input: map_text(replace, input)

    samples = [
        sample(text("hello"), pattern="(l)(l)", rewrite=r"\2-\1\0"),
        sample(text("aaa", "abc"), pattern="a*", rewrite="x"),
        sample(text("abc"), pattern="", rewrite="-"),
        sample(text("abc"), pattern="b*", rewrite="-"),
        sample(text("aé語", "a\nb"), pattern=".", rewrite=" "),
        sample(text("abc"), pattern="[[:alpha:]]", rewrite="z"),
        sample(text("a.b"), pattern=r"\.", rewrite=r"\\"),
        sample(text("ab\n", "ab"), pattern="b$", rewrite="x"),
        sample(text("foo123", "١"), pattern=r"\pN+", rewrite="x"),
        sample(text("aXb"), pattern="(?i)x", rewrite="-"),
        sample(text("a b\tc\vd"), pattern=r"\s", rewrite="_"),
        sample(text("a1 b2", "é٢"), pattern=r"[^\d\s]", rewrite="#"),
        sample(text("éa b"), pattern=r"\b", rewrite="|"),
        sample(text("É1_"), pattern=r"(?i)é|\W|[\D_]", rewrite="-"),
        sample(text("abc", "xyz"), pattern="(?P<n>b)", rewrite=r"<\1>"),
        sample(text("abcabc"), pattern="^a", rewrite="x"),
        sample(text("a+b*c"), pattern=r"\Q+b*\E", rewrite="_"),
        sample(text("ab"), pattern=r"b\z", rewrite="x"),
        sample(text("a[b&c"), pattern="[[&]", rewrite="x"),
        sample(text("a\nb"), pattern="(?m)a$", rewrite="x"),
    ]


class _Matching:
    """What both matching ops share."""

    cpu_only = True

    def shape(self, s: ShapeContext, input: TensorShape, *scalars: TensorShape) -> TensorShape:
        for scalar in scalars:
            scalar.with_rank(0)
        return input


def _full_match(pattern: bytes, input: Any) -> Any:
    match = compiled(pattern).fullmatch
    found = [
        match(item.decode("utf-8", "surrogateescape")) is not None for item in input.reshape(-1).tolist()
    ]
    return np.array(found, bool).reshape(input.shape)


@op("RegexFullMatch(input: string, pattern: string) -> output: bool")
class RegexFullMatch(_Matching):
    """True for each string that `pattern` matches from beginning to end."""

    def compute(self, k: KernelContext, input: Any, pattern: Any) -> Any:
        return _full_match(pattern.item(), input)

    samples = [
        sample(text("abc", "ab", "xab"), text("ab.?").reshape(())),
        sample(text("abc\n"), text("abc").reshape(())),
    ]


@op("StaticRegexFullMatch(input: string) -> output: bool", pattern="string")
class StaticRegexFullMatch(_Matching):
    """True for each string that the attr `pattern` matches from beginning to end."""

    def compute(self, k: KernelContext, input: Any) -> Any:
        return _full_match(k.attrs["pattern"], input)

    samples = [sample(text("abc", "a"), pattern="a|abc"), sample(text("ab").reshape(()), pattern="a")]
