"""One table: graphrt beside TensorFlow, interleaved in one run.

    python -m benchmarks                      every case
    python -m benchmarks softmax lenet        some
    python -m benchmarks --rounds 9 --json results.json

Each engine has a process of its own, so neither's threads disturb the other's; for every case the two take
turns, a round each, and the table has the median time of a step, its spread, and the median of the rounds'
ratios. Without TensorFlow only graphrt is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.cases import CASES, Case
from benchmarks.cluster_cases import CLUSTER_CASES

ALL_CASES = [*CASES, *CLUSTER_CASES]
_ROOT = Path(__file__).resolve().parent.parent


class Engine:
    """An engine's worker process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {self.name} process ended with code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def measure(case: Case, names: list[str], rounds: int) -> dict[str, Any]:
    """Microseconds a step of each engine, a list of `rounds`; and each one's peak memory. Fresh processes."""
    engines = [Engine(n) for n in names]
    try:
        for engine in engines:
            engine.ask(build=case.name)
            # The first steps compile and plan; some engines take a few.
            engine.ask(run=max(1, case.steps // 4))
        took: dict[str, list[float]] = {n: [] for n in names}
        for _ in range(rounds):
            for engine in engines:
                took[engine.name].append(engine.ask(run=case.steps)["us"])
        return {"us": took, "peak_mb": {e.name: e.ask(memory=True)["peak_mb"] for e in engines}}
    finally:
        for engine in engines:
            engine.close()


def measure_import(names: list[str], rounds: int) -> dict[str, Any]:
    modules = {"graphrt": "graphrt", "tensorflow": "tensorflow.compat.v1"}
    took: dict[str, list[float]] = {n: [] for n in names}
    for _ in range(rounds):
        for name in names:
            begin = perf_counter()
            subprocess.run(
                [sys.executable, "-c", f"import {modules[name]}"],
                check=True,
                cwd=_ROOT,
                stderr=subprocess.DEVNULL,
            )
            took[name].append((perf_counter() - begin) * 1e6)
    bare = []
    for _ in range(rounds):
        begin = perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append((perf_counter() - begin) * 1e6)
    return {"us": {n: [t - statistics.median(bare) for t in took[n]] for n in names}, "peak_mb": {}}


def _row(title: str, found: dict[str, Any], bar: float | None) -> str:
    cells = [f"{title:<44}"]
    for name, times in found["us"].items():
        middle = statistics.median(times)
        spread = (
            f"{min(times):,.0f}-{max(times):,.0f}" if middle >= 100 else f"{min(times):.1f}-{max(times):.1f}"
        )
        cells.append(f"{_time(middle):>10} ({spread} us)".ljust(38))
        del name
    if len(found["us"]) == 2:
        ours, theirs = found["us"].values()
        ratio = statistics.median([b / a for a, b in zip(ours, theirs)])
        verdict = "" if bar is None else f"  bar {bar:g}x: {'met' if ratio >= bar else 'missed'}"
        cells.append(f"{ratio:6.2f}x{verdict}")
    if found["peak_mb"]:
        cells.append("  peak " + " / ".join(f"{mb:,.0f}" for mb in found["peak_mb"].values()) + " MB")
    return " ".join(cells)


def _time(us: float) -> str:
    return f"{us:.1f} us" if us < 1000 else f"{us / 1e3:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("cases", nargs="*", help=f"of: import {' '.join(c.name for c in ALL_CASES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write every figure to this file")
    asked = parser.parse_args()
    unknown = set(asked.cases) - {"import", *(c.name for c in ALL_CASES)}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    names = ["graphrt"] + (["tensorflow"] if importlib.util.find_spec("tensorflow") else [])
    if len(names) == 1:
        print("TensorFlow is not installed: graphrt alone is timed.")
    print(
        f"{'median time of a step (least-most of ' + str(asked.rounds) + ' rounds)':<44} "
        + " ".join(f"{n:>10}".ljust(38) for n in names)
        + (" TensorFlow / graphrt" if len(names) == 2 else "")
    )
    results = {}
    if not asked.cases or "import" in asked.cases:
        results["import"] = measure_import(names, asked.rounds)
        print(_row("import (beyond Python's own start)", results["import"], None), flush=True)
    for case in ALL_CASES:
        if asked.cases and case.name not in asked.cases:
            continue
        results[case.name] = measure(case, names, asked.rounds)
        print(_row(case.title, results[case.name], case.bar), flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
