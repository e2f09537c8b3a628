"""One engine's process: builds the case it is told to and times steps on demand. Lines of JSON in, lines of
JSON out.

    {"build": "softmax"}  ->  {"ok": true}
    {"run": 500}          ->  {"us": 61.2}         microseconds a step
    {"memory": true}      ->  {"peak_mb": 212.5}
"""

from __future__ import annotations

import json
import os
import resource
import sys
from time import perf_counter
from typing import Any


def engine(name: str) -> Any:
    if name == "graphrt":
        import graphrt

        return graphrt
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return tf


def main() -> None:
    tf = engine(sys.argv[1])
    from benchmarks.cases import CASES
    from benchmarks.cluster_cases import CLUSTER_CASES

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an engine prints is not an answer
    step: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {"ok": True}
        if "build" in asked:
            tf.reset_default_graph()
            step = next(c for c in [*CASES, *CLUSTER_CASES] if c.name == asked["build"]).build(tf)
        elif "run" in asked:
            begin = perf_counter()
            own = None
            for _ in range(asked["run"]):
                own = step()
            took = (perf_counter() - begin) / asked["run"]
            # A step that returns a float has timed itself.
            answer = {"us": (own if isinstance(own, float) else took) * 1e6}
        else:
            answer = {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
