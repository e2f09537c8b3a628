"""tf.signal gives TensorFlow's values and undoes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphrt

X = np.random.default_rng(3).standard_normal((2, 50)).astype(np.float32)
Z = (X[:, :10] + 1j * X[:, 10:20]).astype(np.complex64)

CASES: dict[str, Callable[[Any], list[Any]]] = {
    "windows": lambda tf: [
        *(w(n) for w in (tf.signal.hann_window, tf.signal.hamming_window) for n in (1, 7, 8)),
        tf.signal.hann_window(8, periodic=False),
        tf.signal.kaiser_window(9),
        tf.signal.kaiser_window(8, 4.0),
        tf.signal.kaiser_bessel_derived_window(8),
        tf.signal.vorbis_window(8, dtype=tf.float64),
    ],
    "frames": lambda tf: [
        tf.signal.frame(X, 16, 8),
        tf.signal.frame(X, 16, 7, pad_end=True, pad_value=3),
        tf.signal.frame(X, 2, 1, axis=0),
        tf.signal.frame(X, 60, 5),
        tf.signal.overlap_and_add(tf.signal.frame(X, 16, 8), 8),
        tf.signal.overlap_and_add(X, 7),
    ],
    "spectra": lambda tf: [
        tf.signal.stft(X, 16, 8),
        tf.signal.stft(X, 12, 5, fft_length=20, pad_end=True, window_fn=None),
        tf.signal.stft(X, 16, 8, window_fn=tf.signal.hamming_window),
        tf.signal.inverse_stft(tf.signal.stft(X, 16, 8), 16, 8),
        tf.signal.fftshift(Z),
        tf.signal.ifftshift(Z, axes=[1]),
        tf.signal.fftshift(X[0]),
    ],
    "mel": lambda tf: [
        tf.signal.linear_to_mel_weight_matrix(),
        tf.signal.linear_to_mel_weight_matrix(10, 65, 16000, 60.0, 7000.0),
        tf.signal.mfccs_from_log_mel_spectrograms(X),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_tensorflows(case: str, tf: Any) -> None:
    found = []
    for module in (graphrt, tf.compat.v1):
        with module.Graph().as_default(), module.Session() as session:
            found.append(session.run(CASES[case](module)))
    for i, (mine, wanted) in enumerate(zip(*found)):
        assert mine.dtype == wanted.dtype
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=2e-5, err_msg=f"{case}, value {i}")


def test_the_inverse_of_a_spectrum_with_its_own_window_is_the_signal() -> None:
    tf = graphrt
    window = tf.signal.inverse_stft_window_fn(8)
    again = tf.signal.inverse_stft(tf.signal.stft(X, 16, 8, pad_end=True), 16, 8, window_fn=window)
    with tf.Session() as session:
        made = session.run(again)
    # The first step is under the rising half of one window only.
    np.testing.assert_allclose(made[:, 8:50], X[:, 8:], atol=1e-5)


def test_signals_of_unknown_length_are_framed_when_the_step_runs() -> None:
    tf = graphrt
    x = tf.placeholder(tf.float32, [None, None])
    for pad_end in (False, True):
        spectrum = tf.signal.stft(x, 16, 8, pad_end=pad_end)
        loss_gradient = tf.gradients(tf.reduce_sum(tf.abs(spectrum)), x)[0]
        with tf.Session() as session:
            values, slope = session.run([spectrum, loss_gradient], {x: X})
            wanted = session.run(tf.signal.stft(X, 16, 8, pad_end=pad_end))
        np.testing.assert_allclose(values, wanted, atol=1e-6)
        assert slope.shape == X.shape and np.isfinite(slope).all()


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda tf: tf.signal.hann_window(0), "positive"),
        (lambda tf: tf.signal.hann_window(tf.placeholder(tf.int32, [])), "known when the graph is built"),
        (lambda tf: tf.signal.hann_window(4, dtype=tf.int32), "floating"),
        (lambda tf: tf.signal.frame(tf.zeros([4]), 2, 1, axis=2), "axis 2"),
        (lambda tf: tf.signal.linear_to_mel_weight_matrix(sample_rate=100), "half the sample rate"),
    ],
)
def test_what_cannot_be_built_says_why(build: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(graphrt)
