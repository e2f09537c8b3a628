"""The MNIST digits for examples and benchmarks: found on disk, or downloaded once and verified.

    mnist = load_mnist()
    images, labels = mnist.train.next_batch(100, one_hot=True)   # float32 [100, 784], float32 [100, 10]

Standard library and NumPy only: a script that feeds a graph elsewhere can use this without graphrt's engine.
"""

import gzip
import hashlib
import http.client
import io
import math
import os
import threading
import time
import urllib.request
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

CLASSES = 10
ENVIRONMENT_VARIABLE = "GRAPHRT_MNIST_DIR"
MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
# Of the files' unpacked contents: mirrors compress them differently.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FILES = tuple(SHA256)
LARGEST_DOWNLOAD = 32 << 20  # bytes; the largest file has 10 MB
LARGEST_UNPACKED = 64 << 20  # bytes; the largest file has 47 MB
CHUNK = 1 << 16
LONGEST_SILENCE_S = 20.0  # of a mirror, before the next one is tried
UBYTE = 0x08  # the only element type that MNIST's idx files use


class DownloadError(OSError):
    """No mirror gave a file whose contents have the expected checksum."""


class Split:
    """Images and labels that belong together, handed out in shuffled batches.

    `next_batch` may be called from several threads; together they see each example once an epoch.

    Attributes:
      pixels: uint8 array of shape [n, 784], row-major 28 x 28 images, 0 is background.
      labels: uint8 array of shape [n], values 0 to 9.
      epochs_completed: how many times every example has been handed out.
    """

    def __init__(self, pixels: np.ndarray, labels: np.ndarray, seed: int = 0):
        if len(pixels) != len(labels):
            raise ValueError(f"{len(pixels)} images do not belong to {len(labels)} labels")
        self.pixels = pixels.reshape(len(pixels), -1)
        self.labels = labels
        self.epochs_completed = 0
        self._random = np.random.default_rng(seed)
        self._order = self._random.permutation(len(labels))
        self._position = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def images(self) -> np.ndarray:
        """All images as float32 of shape [n, 784], values in [0, 1]. Made on first use: 188 MB for 60,000."""
        return scaled(self.pixels)

    @cached_property
    def one_hot_labels(self) -> np.ndarray:
        """All labels as float32 of shape [n, 10], 1.0 at the digit. Made on first use."""
        return to_one_hot(self.labels)

    def next_batch(self, batch_size: int, one_hot: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The next `batch_size` examples of a random order that is drawn anew every epoch.

        A batch that reaches the end of an epoch is filled up from the next one.

        Args:
          batch_size: from 1 to the number of examples.
          one_hot: labels as float32 [batch_size, 10] instead of uint8 [batch_size].
        Returns:
          (images, labels): float32 of shape [batch_size, 784] with values in [0, 1], and the labels. Both are
          new arrays.
        Raises:
          ValueError: `batch_size` is out of range.
        """
        if not 1 <= batch_size <= len(self):
            raise ValueError(f"batch_size {batch_size} is out of range: there are {len(self)} examples")
        with self._lock:
            chosen = self._order[self._position : self._position + batch_size]
            self._position += batch_size
            if self._position >= len(self):
                self.epochs_completed += 1
                self._order = self._random.permutation(len(self))
                self._position -= len(self)
                chosen = np.concatenate([chosen, self._order[: self._position]])
        labels = self.labels[chosen]
        return scaled(self.pixels[chosen]), to_one_hot(labels) if one_hot else labels


@dataclass(frozen=True)
class Mnist:
    """60,000 handwritten digits to train on, 10,000 to test with, and the folder that they came from."""

    train: Split
    test: Split
    folder: Path


def scaled(pixels: np.ndarray) -> np.ndarray:
    """uint8 pixels as float32 in [0, 1]."""
    return np.divide(pixels, np.float32(255), dtype=np.float32)


def to_one_hot(labels: np.ndarray) -> np.ndarray:
    """Digits of shape [n] as float32 of shape [n, 10]."""
    rows = np.zeros((len(labels), CLASSES), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows


def load_mnist(path: str | os.PathLike | None = None, seed: int = 0) -> Mnist:
    """MNIST from the first folder that has its four files, downloaded if none has.

    Looked for in this order: `path`; the folder that the environment variable GRAPHRT_MNIST_DIR names;
    examples/data/mnist of a source checkout; the user's cache folder, which is also where downloads go.
    The first two are used or fail: a folder that was asked for is never replaced by another. The files
    have the names of `FILES`, as they are or with .gz.

    Args:
      path: a folder.
      seed: of the order of batches; workers of one training run want different ones.
    Raises:
      FileNotFoundError: `path` or the environment variable's folder lacks files; the message names them.
      ValueError: a file is not an idx file of the right shape; the message says which and why.
      DownloadError: nothing on disk, and no mirror gave the files; the message says how to provide them.
    """
    folder = find_mnist(path)
    if folder is None:
        folder = cache_folder()
        download_mnist(folder)
    return Mnist(read_split(folder, "train", seed), read_split(folder, "t10k", seed), folder)


def find_mnist(path: str | os.PathLike | None = None) -> Path | None:
    """The folder on disk that `load_mnist` would read; None if it would download."""
    from_environment = os.environ.get(ENVIRONMENT_VARIABLE)
    for asked_for, by in ((path, "the argument `path`"), (from_environment, ENVIRONMENT_VARIABLE)):
        if asked_for:
            folder = Path(asked_for)
            missing = [name for name in FILES if file_in(folder, name) is None]
            if missing:
                raise FileNotFoundError(
                    f"{by} names {folder}, which lacks {', '.join(missing)} (each as it is or with .gz)"
                )
            return folder
    checkout = Path(__file__).resolve().parent.parent / "examples" / "data" / "mnist"
    for folder in (checkout, cache_folder()):
        if all(file_in(folder, name) for name in FILES):
            return folder
    return None


def cache_folder() -> Path:
    """Where downloads are kept: graphrt/mnist in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "graphrt" / "mnist"


def file_in(folder: Path, name: str) -> Path | None:
    """The file `name` of a folder, as it is or compressed; None if there is none."""
    candidates = (folder / name, folder / f"{name}.gz")
    return next((file for file in candidates if file.is_file()), None)


def read_split(folder: Path, prefix: str, seed: int) -> Split:
    images_file = file_in(folder, f"{prefix}-images-idx3-ubyte")
    labels_file = file_in(folder, f"{prefix}-labels-idx1-ubyte")
    images = parse_idx(unpack(images_file.read_bytes(), images_file), 3, images_file)
    labels = parse_idx(unpack(labels_file.read_bytes(), labels_file), 1, labels_file)
    if images.shape[1:] != (28, 28):
        raise ValueError(
            f"{images_file}: images of {images.shape[1]} x {images.shape[2]} pixels, expected 28 x 28"
        )
    if len(labels) != len(images):
        raise ValueError(
            f"{labels_file}: {len(labels)} labels, but {images_file.name} has {len(images)} images"
        )
    if labels.size and labels.max() >= CLASSES:
        raise ValueError(f"{labels_file}: label {labels.max()}, expected digits from 0 to 9")
    return Split(images, labels, seed)


def unpack(content: bytes, source: object) -> bytes:
    """A file's contents, decompressed if they are gzip; `source` names it in errors."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            unpacked = stream.read(LARGEST_UNPACKED + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{source}: damaged gzip file ({error})") from error
    if len(unpacked) > LARGEST_UNPACKED:
        raise ValueError(
            f"{source}: unpacks to more than {LARGEST_UNPACKED} bytes, so it is not a file of MNIST"
        )
    return unpacked


def parse_idx(content: bytes, rank: int, source: object) -> np.ndarray:
    """The uint8 array in an idx file.

    The format: two zero bytes, the element type, the rank, a big-endian uint32 per dimension, the elements.

    Args:
      content: the whole file, not compressed.
      rank: the expected number of dimensions.
      source: names the file in errors.
    Returns:
      A read-only array over `content`.
    Raises:
      ValueError: not an idx file, another element type or rank, or not as long as its header says.
    """
    header = 4 + 4 * rank
    if content[:2] != b"\x00\x00" or len(content) < 4:
        raise ValueError(f"{source}: not an idx file, it starts with {content[:4].hex(' ') or 'nothing'}")
    if content[2] != UBYTE or content[3] != rank:
        raise ValueError(
            f"{source}: idx file with element type 0x{content[2]:02x} and {content[3]} dimensions, "
            f"expected 0x{UBYTE:02x} (uint8) and {rank}"
        )
    if len(content) < header:
        raise ValueError(f"{source}: idx header cut off after {len(content)} of {header} bytes")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", rank, offset=4))
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"{source}: {len(content)} bytes, but its header {list(shape)} asks for {expected}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def download_mnist(folder: Path, deadline_s: float = 120.0) -> None:
    """Fetch the files that `folder` lacks from the first mirror that has them intact.

    Args:
      folder: made if needed; files appear in it only when they are complete and verified.
      deadline_s: for all files together.
    Raises:
      DownloadError: a file could not be had; says what each mirror answered and how to provide the files.
    """
    deadline = time.monotonic() + deadline_s
    for name in FILES:
        if file_in(folder, name):
            continue
        failures = []
        for mirror in MIRRORS:
            url = f"{mirror}{name}.gz"
            try:
                content = fetch(url, deadline)
                verify(unpack(content, url), name)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"  {url}: {error}")
                continue
            folder.mkdir(parents=True, exist_ok=True)
            # Written aside and renamed, so that processes that start together see whole files only.
            part = folder / f"{name}.gz.{os.getpid()}.part"
            part.write_bytes(content)
            os.replace(part, folder / f"{name}.gz")
            break
        else:
            raise DownloadError(
                f"MNIST's {name} is not on this machine and could not be downloaded.\n"
                + "\n".join(failures)
                + f"\nPut {', '.join(FILES)} (as they are or with .gz) into {folder},"
                + f"\nor set {ENVIRONMENT_VARIABLE} to the folder that has them."
            )


def fetch(url: str, deadline: float) -> bytes:
    """The body at `url`, or an OSError: TimeoutError once time.monotonic() passes `deadline`."""
    content = bytearray()
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("no time left before the deadline")
    with urllib.request.urlopen(url, timeout=min(remaining, LONGEST_SILENCE_S)) as response:
        while chunk := response.read1(CHUNK):
            content += chunk
            if len(content) > LARGEST_DOWNLOAD:
                raise OSError(f"longer than {LARGEST_DOWNLOAD} bytes, so it is not a file of MNIST")
            if time.monotonic() > deadline:
                raise TimeoutError(f"deadline passed after {len(content)} bytes")
    return bytes(content)


def verify(unpacked: bytes, name: str) -> None:
    """Raises ValueError unless the contents are those of MNIST's file `name`."""
    found = hashlib.sha256(unpacked).hexdigest()
    if found != SHA256[name]:
        raise ValueError(f"checksum mismatch: SHA-256 {found} where {SHA256[name]} is expected")
