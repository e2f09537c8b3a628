"""Who may talk to a server: mutual TLS and a cluster token, from the environment, on every connection.

GRAPHRT_TLS_CERT, GRAPHRT_TLS_KEY, GRAPHRT_TLS_CA   files in PEM form; all three, or none. Each side shows its
certificate
                                                    and asks for one that the authority signed.
GRAPHRT_TLS_NAME                                    the name in the certificates, where it is not the host's
GRAPHRT_CLUSTER_TOKEN                               sent with every call, and asked of every call
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import warnings
from typing import Any

from graphrt.core.errors import InvalidArgumentError

TOKEN_KEY = "graphrt-cluster-token"
_FILES = ("GRAPHRT_TLS_CERT", "GRAPHRT_TLS_KEY", "GRAPHRT_TLS_CA")


def token() -> str:
    return os.environ.get("GRAPHRT_CLUSTER_TOKEN", "")


def metadata() -> tuple[tuple[str, str], ...] | None:
    """What a call carries."""
    secret = token()
    return ((TOKEN_KEY, secret),) if secret else None


def is_admitted(given: Any) -> bool:
    """True where the metadata of a call has the token, if one is asked for."""
    secret = token()
    if not secret:
        return True
    shown = next((v for k, v in given or () if k == TOKEN_KEY), "")
    if isinstance(shown, str):
        shown = shown.encode()
    return hmac.compare_digest(shown, secret.encode())


def _tls_files() -> list[bytes] | None:
    paths = [os.environ.get(name, "") for name in _FILES]
    if not any(paths):
        return None
    missing = [name for name, path in zip(_FILES, paths) if not path]
    if missing:
        raise InvalidArgumentError(
            None, None, f"TLS needs {', '.join(_FILES)}: {', '.join(missing)} is not set"
        )
    found = []
    for name, path in zip(_FILES, paths):
        try:
            with open(path, "rb") as file:
                found.append(file.read())
        except OSError as error:
            raise InvalidArgumentError(
                None, None, f"{name} names '{path}', which cannot be read: {error.strerror}"
            ) from None
    return found


def channel_credentials() -> Any:
    """gRPC's credentials of an outgoing connection; None without TLS."""
    import grpc

    files = _tls_files()
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_channel_credentials(authority, key, certificate)


def server_credentials() -> Any:
    """gRPC's credentials of a port; None without TLS."""
    import grpc

    files = _tls_files()
    if files is None:
        return None
    certificate, key, authority = files
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


def tls_name_options() -> list[tuple[str, Any]]:
    name = os.environ.get("GRAPHRT_TLS_NAME", "")
    return [("grpc.ssl_target_name_override", name)] if name else []


def is_loopback(address: str) -> bool:
    """True where only this machine can reach a port at `address`."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_warned = False


def warn_if_open(address: str) -> None:
    """One warning where a port that others can reach asks for neither a certificate nor a token."""
    global _warned
    if _warned or is_loopback(address) or token() or any(os.environ.get(n) for n in _FILES):
        return
    _warned = True
    warnings.warn(
        f"the server at {address} runs whatever anyone who reaches that address sends to it. Set "
        "GRAPHRT_CLUSTER_TOKEN, "
        "or GRAPHRT_TLS_CERT, _KEY and _CA, on every task and client, or listen on a loopback address",
        stacklevel=3,
    )
