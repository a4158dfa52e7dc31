# SPDX-License-Identifier: Apache-2.0
"""What holds of each factorisation, whatever signs, phases and order its vectors have.

errors(harness, a, results): [(what, error, size)], the largest difference of each equation in f64 and
what it is relative to.
"""
import numpy as np
from scipy.optimize import linear_sum_assignment

# A bound of numerical analysis, not of taste: these algorithms are backward stable, the error is a
# small multiple of n * eps * norm.
ROOM = 50


def adjoint(x):
    return x.conj().swapaxes(-1, -2)


def identity(like):
    return np.broadcast_to(np.eye(like.shape[-1]), like.shape)


def orthonormal(name, columns):
    product = adjoint(columns) @ columns
    return name, product - identity(product), 1.0


def lower_and_upper(harness, a, lu, pivots, permutation):
    count = min(a.shape[-2:])
    lower = np.tril(lu, -1)[..., :count] + np.eye(a.shape[-2], count)
    upper = np.triu(lu)[..., :count, :]
    rows = np.take_along_axis(a, permutation[..., None], -2)
    yield 'l u = a[permutation]', lower @ upper - rows, np.abs(a).max(initial=0)
    swapped = np.broadcast_to(np.arange(a.shape[-2]), permutation.shape).copy()
    for index in np.ndindex(pivots.shape[:-1]):
        for i, j in enumerate(pivots[index]):
            swapped[index][[i, j]] = swapped[index][[j, i]]
    yield 'pivots say the permutation', swapped - permutation, 0.0
    # Of complex numbers pivots have the largest sum of their parts' magnitudes.
    most = np.sqrt(2) if np.iscomplexobj(lower) else 1.0
    yield 'l is bounded', np.maximum(np.abs(lower) - most, 0), 1.0


def orthogonal_and_upper(harness, a, q, r):
    yield 'q r = a', q @ r - a, np.abs(a).max(initial=0)
    yield orthonormal('q^H q = 1', q)
    yield 'r is upper', np.tril(r, -1), 0.0


def singular(harness, a, s, u=None, vt=None):
    size = np.abs(a).max(initial=0)
    yield 'singular values', s - np.linalg.svd(a, compute_uv=False), size
    yield 'they descend', np.maximum(np.diff(s), 0), 0.0
    if u is not None:
        yield 'u s vt = a', u[..., :s.shape[-1]] * s[..., None, :] @ vt[..., :s.shape[-1], :] - a, size
        yield orthonormal('u^H u = 1', u)
        yield orthonormal('v^H v = 1', adjoint(vt))


def hermitian(harness, a, v, w):
    size = np.abs(a).max(initial=0)
    yield 'eigenvalues', w - np.linalg.eigvalsh(a), size
    yield 'a v = v w', a @ v - v * w[..., None, :], size
    yield orthonormal('v^H v = 1', v)


def general(harness, a, w, *vectors):
    size = np.abs(a).max(initial=0)
    want = np.linalg.eigvals(a)
    distances = np.abs(w[..., :, None] - want[..., None, :])
    pairs = [distances[index][linear_sum_assignment(distances[index])] for index in np.ndindex(w.shape[:-1])]
    # A simple eigenvalue moves by its condition times the error of the matrix; those of 6 x 6 normal
    # numbers here have some tens.
    yield 'eigenvalues', np.array(pairs), 10 * size
    left = vectors[0] if harness.params['compute_left_eigenvectors'] else None
    right = vectors[-1] if harness.params['compute_right_eigenvectors'] else None
    if right is not None:
        yield 'a v = v w', a @ right - right * w[..., None, :], size
        yield 'of length 1', np.linalg.norm(right, axis=-2) - 1, 1.0
    if left is not None:
        yield 'u^H a = w u^H', adjoint(left) @ a - w[..., :, None] * adjoint(left), size
        yield 'of length 1', np.linalg.norm(left, axis=-2) - 1, 1.0


OF = {'lu': lower_and_upper, 'qr': orthogonal_and_upper, 'svd': singular, 'eigh': hermitian, 'eig': general}


def errors(harness, a, results):
    def widened(x):
        if not np.issubdtype(x.dtype, np.inexact):
            return x
        return x.astype(np.complex128 if np.issubdtype(x.dtype, np.complexfloating) else np.float64)
    found = OF[harness.group_name](harness, widened(a), *map(widened, results))
    return [(what, float(np.abs(difference).max(initial=0)), size) for what, difference, size in found]


def check(harness, a, results):
    assert all(np.isfinite(x).all() for x in results)
    rows = max(a.shape[-2:])
    for what, error, size in errors(harness, a, results):
        limit = ROOM * np.finfo(a.dtype).eps * rows * size
        assert error <= limit, f'{what}: off by {error:.3g}, limit {limit:.3g}'
