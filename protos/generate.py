"""Compile protos/graphrt/*.proto to graphrt/protos/*_pb2.py, with the oldest protoc that is supported.

Generated code works with the protobuf release that its protoc belongs to and with later ones, so an
old protoc keeps the requirement in pyproject.toml low. `make protos` runs this in an environment of
its own that has exactly `GRPCIO_TOOLS`.
"""

import sys
from importlib import metadata, resources
from pathlib import Path

GRPCIO_TOOLS = "1.65.5"  # bundles protoc 26.1: its output loads with protobuf 5.26 and later
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    installed = metadata.version("grpcio-tools")
    if installed != GRPCIO_TOOLS:
        sys.exit(f"generate.py needs grpcio-tools=={GRPCIO_TOOLS}, found {installed}: run `make protos`")
    from grpc_tools import protoc

    sources = sorted((ROOT / "protos" / "graphrt").glob("*.proto"))
    output = ROOT / "graphrt" / "protos"
    for stale in output.glob("*_pb2.py"):
        stale.unlink()
    # The virtual folder makes generated files import each other as graphrt.protos.x_pb2.
    folders = [f"graphrt/protos={ROOT / 'protos' / 'graphrt'}", str(resources.files("grpc_tools") / "_proto")]
    names = [f"graphrt/protos/{source.name}" for source in sources]
    return protoc.main(["protoc", *(f"-I{folder}" for folder in folders), f"--python_out={ROOT}", *names])


if __name__ == "__main__":
    sys.exit(main())
