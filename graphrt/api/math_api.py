"""The mathematics of the public namespace, from its parts: elementwise, reductions, products, sequences,
matrices, spectra."""

from graphrt.api import math_elementwise, math_products, math_reduce, matrix_diagonals, ranges
from graphrt.api.math_elementwise import *  # noqa: F403
from graphrt.api.math_products import *  # noqa: F403
from graphrt.api.math_reduce import *  # noqa: F403
from graphrt.api.matrix_diagonals import *  # noqa: F403
from graphrt.api.ranges import *  # noqa: F403
from graphrt.linalg import (
    cholesky,
    cholesky_solve,
    eye,
    matrix_determinant,
    matrix_inverse,
    matrix_solve,
    matrix_solve_ls,
    matrix_triangular_solve,
    norm,
    qr,
    self_adjoint_eig,
    self_adjoint_eigvals,
    svd,
)
from graphrt.spectral import fft, fft2d, fft3d, ifft, ifft2d, ifft3d

# `matvec` is tf.linalg's.
__all__ = [
    *math_elementwise.__all__,
    *(n for n in math_products.__all__ if n != "matvec"),
    *math_reduce.__all__,
    *matrix_diagonals.__all__,
    *ranges.__all__,
    "cholesky",
    "cholesky_solve",
    "eye",
    "fft",
    "fft2d",
    "fft3d",
    "ifft",
    "ifft2d",
    "ifft3d",
    "matrix_determinant",
    "matrix_inverse",
    "matrix_solve",
    "matrix_solve_ls",
    "matrix_triangular_solve",
    "norm",
    "qr",
    "self_adjoint_eig",
    "self_adjoint_eigvals",
    "svd",
]
