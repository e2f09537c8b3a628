"""`graphrt trace`: where a traced step spent its time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphrt.client.timeline import Event, Timeline
from graphrt.tools.explain import UsageError

_EPILOG = """\
A RunMetadata file is written by the program that ran the step:

    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    session.run(train, feeds, options, metadata)
    Path("step.pb").write_bytes(metadata.SerializeToString())

then

    graphrt trace step.pb -o step.json      and open step.json in ui.perfetto.dev or chrome://tracing
"""
_NO_STATS = "has no step statistics: run the step with RunOptions(trace_level=RunOptions.FULL_TRACE)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        timeline = Timeline(read_run_metadata(asked.metadata).step_stats)
        if not timeline.events:
            raise UsageError(f"{asked.metadata} {_NO_STATS}")
        if asked.output:
            text = timeline.generate_chrome_trace_format(not asked.no_dataflow, asked.memory)
            Path(asked.output).write_text(text, encoding="utf-8")
    except (UsageError, OSError) as error:
        print(f"graphrt trace: {error}", file=sys.stderr)
        return 2
    print("\n".join(report(timeline.events, asked.top, by_node=asked.by_node)))
    if asked.output:
        print(f"\nTrace: {Path(asked.output).resolve()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt trace", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Where a traced step spent its time: a table of its ops, and a Chrome trace with a lane\n"
                    "for each kernel that ran at the same time and arrows along the tensors.")
    parser.add_argument("metadata", help="a RunMetadata: .pb, or .pbtxt in text form")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the Chrome trace (JSON) there")
    parser.add_argument("--memory", action="store_true", help="the trace also shows the lifetimes of tensors")
    parser.add_argument("--no-dataflow", action="store_true", help="the trace without arrows")
    parser.add_argument("--by-node", action="store_true", help="the table lists nodes, not types of ops")
    parser.add_argument("--top", type=int, default=15, metavar="N",
                        help="lines of the table a device (default %(default)s)")
    return parser


def read_run_metadata(path: str) -> Any:
    """The RunMetadata in a file.

    Raises:
      UsageError: there is no such file, or it is something else.
    """
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    from graphrt.protos import config_pb2
    file, message = Path(path), config_pb2.RunMetadata()
    try:
        if file.suffix in (".pbtxt", ".txt"):
            text_format.Parse(file.read_text(encoding="utf-8"), message)
        else:
            message.ParseFromString(file.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a RunMetadata: {error}") from None
    return message


def report(events: list[Event], top: int, by_node: bool = False) -> list[str]:
    """A table a device, the costliest first: time, share, calls, and how much of the step it was busy."""
    began, ended = min(e.start for e in events), max(e.end for e in events)
    lines = [f"The step took {(ended - began) / 1e6:,.3f} ms from its first kernel to its last."]
    for device in sorted({e.device for e in events}):
        own = [e for e in events if e.device == device]
        total = sum(e.duration for e in own)
        lines += ["", f"{device}: {len(own):,} kernels, {total / 1e6:,.3f} ms in them, "
                      f"busy {100 * busy(own) / max(ended - began, 1):.0f} % of the step"]
        spent: dict[str, list[int]] = {}
        for event in own:
            spent.setdefault(f"{event.name} ({event.op})" if by_node else event.op, []).append(event.duration)
        ranked = sorted(spent.items(), key=lambda item: -sum(item[1]))
        width = max([24, *(len(name) for name, _ in ranked[:top])])
        for name, times in ranked[:top]:
            micros, share = sum(times) / 1e3, 100 * sum(times) / max(total, 1)
            lines.append(f"  {name:<{width}} {micros:>12,.1f} us {share:>5.1f} %  {len(times):>6,} x")
        if len(ranked) > top:
            lines.append(f"  ... and {len(ranked) - top:,} more (--top)")
    return lines


def busy(events: list[Event]) -> int:
    """Nanoseconds in which at least one of the events was under way."""
    total, until = 0, 0
    for event in sorted(events, key=lambda e: e.start):
        total += max(0, event.end - max(event.start, until))
        until = max(until, event.end)
    return total
