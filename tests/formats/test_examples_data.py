"""The example data: where it is looked for, how it is read, and what damaged files and mirrors lead to."""

import gzip
import hashlib
import struct
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from graphrt import examples

ROOT = Path(__file__).resolve().parents[2]


def idx(array: np.ndarray) -> bytes:
    """An idx file of a uint8 array."""
    return struct.pack(f">HBB{array.ndim}I", 0, 0x08, array.ndim, *array.shape) + array.tobytes()


def small_mnist() -> dict[str, bytes]:
    """Files of 20 training and 10 test images, unpacked, by name; pixel 0 of image i is i."""
    files = {}
    for prefix, n in (("train", 20), ("t10k", 10)):
        images = np.zeros((n, 28, 28), np.uint8)
        images[:, 0, 0] = np.arange(n)
        files[f"{prefix}-images-idx3-ubyte"] = idx(images)
        files[f"{prefix}-labels-idx1-ubyte"] = idx((np.arange(n) % 10).astype(np.uint8))
    return files


def write_files(folder: Path, files: dict[str, bytes], compressed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """No environment variable, an empty cache, no mirror and no checkout: each test adds what it is about."""
    monkeypatch.delenv(examples.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(examples, "MIRRORS", ())
    monkeypatch.setattr(examples, "__file__", str(tmp_path / "checkout" / "graphrt" / "examples.py"))


class Mirror(BaseHTTPRequestHandler):
    """Serves `server.files` by name; anything else is 404. `server.silent` holds answers back until set."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.silent is not None:
            self.server.silent.wait(30)
            return
        content = self.server.files.get(self.path.rsplit("/", 1)[1])
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *args):
        pass


@pytest.fixture
def mirrors(monkeypatch):
    """Starts a mirror on loopback with the given files and appends it to the known ones."""
    running = []

    def start(files: dict[str, bytes], silent: bool = False) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        server.files, server.asked = files, []
        server.silent = threading.Event() if silent else None
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.append((server, thread))
        url = f"http://127.0.0.1:{server.server_port}/mnist/"
        monkeypatch.setattr(examples, "MIRRORS", (*examples.MIRRORS, url))
        return server

    yield start
    for server, thread in running:
        if server.silent is not None:
            server.silent.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def expect_small_mnist(monkeypatch):
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in small_mnist().items()}
    monkeypatch.setattr(examples, "SHA256", sums)


def compressed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def test_the_committed_files_are_mnist():
    folder = ROOT / "examples" / "data" / "mnist"
    for name, checksum in examples.SHA256.items():
        assert hashlib.sha256(gzip.decompress((folder / f"{name}.gz").read_bytes())).hexdigest() == checksum
    mnist = examples.load_mnist(folder)
    assert (len(mnist.train), len(mnist.test)) == (60_000, 10_000)
    assert mnist.test.images.shape == (10_000, 784)
    assert mnist.test.images.dtype == np.float32
    assert (mnist.test.images.min(), mnist.test.images.max()) == (0.0, 1.0)
    assert mnist.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test.labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_one_hot_labels_have_their_one_at_the_digit(tmp_path):
    mnist = examples.load_mnist(write_files(tmp_path / "m", small_mnist()))
    assert mnist.train.one_hot_labels.dtype == np.float32
    assert mnist.train.one_hot_labels.sum(axis=1).tolist() == [1.0] * 20
    assert mnist.train.one_hot_labels.argmax(axis=1).tolist() == mnist.train.labels.tolist()


def test_an_epoch_of_batches_has_every_example_once_and_images_stay_with_their_labels(tmp_path):
    train = examples.load_mnist(write_files(tmp_path / "m", small_mnist())).train
    for epoch in range(3):
        seen = []
        for _ in range(5):
            images, labels = train.next_batch(4)
            numbers = np.rint(images[:, 0] * 255).astype(int)
            assert (numbers % 10 == labels).all()
            seen += numbers.tolist()
        assert sorted(seen) == list(range(20))
        assert seen != sorted(seen)
        assert train.epochs_completed == epoch + 1


def test_a_batch_over_the_end_of_an_epoch_is_filled_from_the_next_one(tmp_path):
    train = examples.load_mnist(write_files(tmp_path / "m", small_mnist())).train
    counts = Counter()
    for _ in range(20):
        images, labels = train.next_batch(6, one_hot=True)
        assert images.shape == (6, 784)
        assert labels.shape == (6, 10)
        counts.update(np.rint(images[:, 0] * 255).astype(int).tolist())
    assert set(counts.values()) == {6}
    assert train.epochs_completed == 6


def test_the_order_of_batches_follows_the_seed(tmp_path):
    folder = write_files(tmp_path / "m", small_mnist())
    first, again, other = (examples.load_mnist(folder, seed=seed).train for seed in (1, 1, 2))
    assert [first.next_batch(7)[1].tolist() for _ in range(9)] == [
        again.next_batch(7)[1].tolist() for _ in range(9)
    ]
    assert first.next_batch(20)[1].tolist() != other.next_batch(20)[1].tolist()


def test_threads_that_share_a_split_see_each_example_once_an_epoch(tmp_path):
    train = examples.load_mnist(write_files(tmp_path / "m", small_mnist())).train
    batches, start = [], threading.Barrier(4)

    def work():
        start.wait(10)
        for _ in range(50):
            batches.append(np.rint(train.next_batch(2)[0][:, 0] * 255).astype(int).tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    counts = Counter(number for batch in batches for number in batch)
    assert counts == Counter({number: 20 for number in range(20)})


def test_a_batch_shares_no_memory_with_the_examples(tmp_path):
    train = examples.load_mnist(write_files(tmp_path / "m", small_mnist())).train
    images, labels = train.next_batch(20)
    images[:], labels[:] = -1, 255
    assert train.images.min() == 0.0
    assert train.labels.max() == 9


@pytest.mark.parametrize("size", [0, -1, 21])
def test_a_batch_size_out_of_range_is_refused(tmp_path, size):
    train = examples.load_mnist(write_files(tmp_path / "m", small_mnist())).train
    with pytest.raises(ValueError, match=f"batch_size {size} is out of range: there are 20 examples"):
        train.next_batch(size)


def test_folders_are_searched_in_the_documented_order(tmp_path, monkeypatch):
    argument, variable = tmp_path / "argument", tmp_path / "variable"
    checkout = tmp_path / "checkout" / "examples" / "data" / "mnist"
    cache = tmp_path / "cache" / "graphrt" / "mnist"
    assert examples.find_mnist() is None
    write_files(cache, small_mnist())
    assert examples.load_mnist().folder == cache
    write_files(checkout, small_mnist())
    assert examples.load_mnist().folder == checkout
    write_files(variable, small_mnist(), compressed=False)
    monkeypatch.setenv("GRAPHRT_MNIST_DIR", str(variable))
    assert examples.load_mnist().folder == variable
    write_files(argument, small_mnist())
    assert examples.load_mnist(argument).folder == argument


def test_a_folder_that_was_asked_for_is_not_replaced_by_another(tmp_path, monkeypatch):
    write_files(tmp_path / "cache" / "graphrt" / "mnist", small_mnist())
    incomplete = write_files(tmp_path / "incomplete", small_mnist())
    (incomplete / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"`path` names .*incomplete, which lacks t10k-labels-idx1-ubyte \("
    ):
        examples.load_mnist(incomplete)
    monkeypatch.setenv("GRAPHRT_MNIST_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(
        FileNotFoundError, match=r"GRAPHRT_MNIST_DIR names .*nowhere, which lacks train-images"
    ):
        examples.load_mnist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file, it starts with nothing"),
        (b"<html>", "not an idx file, it starts with 3c 68 74 6d"),
        (b"\0\0", "not an idx file, it starts with 00 00"),
        (b"\0\0\x0d\x03" + bytes(12), "element type 0x0d and 3 dimensions, expected 0x08"),
        (b"\0\0\x08\x01" + bytes(12), "element type 0x08 and 1 dimensions, expected 0x08 .uint8. and 3"),
        (b"\0\0\x08\x03\0\0\0", "idx header cut off after 7 of 16 bytes"),
        (
            struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28) + bytes(1567),
            r"1583 bytes, but its header \[2, 28, 28\] asks for 1584",
        ),
        (
            struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3) + bytes(9),
            "25 bytes, but its header .4294967295",
        ),
        (idx(np.zeros((20, 14, 56), np.uint8)), "images of 14 x 56 pixels, expected 28 x 28"),
        (idx(np.zeros((19, 28, 28), np.uint8)), "20 labels, but train-images-idx3-ubyte.gz has 19 images"),
    ],
)
def test_garbage_in_an_idx_file_is_named_with_its_file(tmp_path, content, message):
    folder = write_files(tmp_path / "m", small_mnist() | {"train-images-idx3-ubyte": content})
    with pytest.raises(ValueError, match=f"ubyte.gz: .*{message}"):
        examples.load_mnist(folder)


def test_a_label_that_is_no_digit_is_refused(tmp_path):
    labels = np.full(20, 10, np.uint8)
    folder = write_files(tmp_path / "m", small_mnist() | {"train-labels-idx1-ubyte": idx(labels)})
    with pytest.raises(
        ValueError, match=r"train-labels-idx1-ubyte\.gz: label 10, expected digits from 0 to 9"
    ):
        examples.load_mnist(folder)


@pytest.mark.parametrize("damage", ["cut off", "flipped bit", "header only"])
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    folder = write_files(tmp_path / "m", small_mnist())
    file = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(file.read_bytes())
    if damage == "flipped bit":
        content[-6] ^= 1  # in the checksum
    else:
        del content[len(content) // 2 if damage == "cut off" else 3 :]
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz: damaged gzip file"):
        examples.load_mnist(folder)


def test_a_gzip_bomb_is_refused_before_it_fills_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "LARGEST_UNPACKED", 10_000)
    folder = write_files(tmp_path / "m", small_mnist())
    with pytest.raises(ValueError, match="unpacks to more than 10000 bytes"):
        examples.load_mnist(folder)


def test_files_are_downloaded_once_and_kept(tmp_path, mirrors, expect_small_mnist):
    mirror = mirrors(compressed(small_mnist()))
    assert len(examples.load_mnist().train) == 20
    assert len(mirror.asked) == 4
    assert len(examples.load_mnist().test) == 10
    assert len(mirror.asked) == 4
    kept = sorted(file.name for file in (tmp_path / "cache" / "graphrt" / "mnist").iterdir())
    assert kept == sorted(f"{name}.gz" for name in small_mnist())


def test_a_mirror_with_wrong_contents_is_passed_over(mirrors, expect_small_mnist):
    wrong = small_mnist() | {"train-labels-idx1-ubyte": idx(np.zeros(20, np.uint8))}
    mirrors(compressed(wrong))
    good = mirrors(compressed(small_mnist()))
    assert examples.load_mnist().train.labels.tolist() == [*range(10)] * 2
    assert good.asked == ["/mnist/train-labels-idx1-ubyte.gz"]


def test_when_no_mirror_helps_the_error_says_why_and_what_to_do(tmp_path, mirrors, expect_small_mnist):
    mirrors(compressed(small_mnist() | {"train-images-idx3-ubyte": idx(np.zeros((20, 28, 28), np.uint8))}))
    mirrors({})
    mirrors({"train-images-idx3-ubyte.gz": compressed(small_mnist())["train-images-idx3-ubyte.gz"][:-20]})
    with pytest.raises(examples.DownloadError) as caught:
        examples.load_mnist()
    message = str(caught.value)
    assert "MNIST's train-images-idx3-ubyte is not on this machine and could not be downloaded" in message
    assert "checksum mismatch: SHA-256 " in message
    assert "HTTP Error 404" in message
    assert "damaged gzip file" in message
    assert f"into {tmp_path / 'cache' / 'graphrt' / 'mnist'}" in message
    assert "or set GRAPHRT_MNIST_DIR to the folder that has them" in message
    assert not (tmp_path / "cache" / "graphrt" / "mnist" / "train-images-idx3-ubyte.gz").exists()


def test_a_mirror_that_never_answers_ends_at_the_deadline(tmp_path, mirrors):
    mirrors({}, silent=True)
    with pytest.raises(examples.DownloadError, match="timed out"):
        examples.download_mnist(tmp_path / "m", deadline_s=0.2)


def test_a_download_without_end_is_cut_off(tmp_path, mirrors, monkeypatch):
    monkeypatch.setattr(examples, "LARGEST_DOWNLOAD", 100_000)
    mirrors({"train-images-idx3-ubyte.gz": bytes(300_000)})
    with pytest.raises(examples.DownloadError, match="longer than 100000 bytes"):
        examples.download_mnist(tmp_path / "m")


def test_importing_the_module_loads_no_engine():
    program = (
        "import sys, graphrt.examples\n"
        "heavy = {'networkx', 'grpc', 'google.protobuf', 'numba', 'cupy', 'tensorflow'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr.strip()) == (0, "")
