# SPDX-License-Identifier: Apache-2.0
"""Linear algebra that JAX has no rule for on a new platform, written in JAX itself: what a plugin
without LAPACK gets (with it: jax_lapack.py).

eigh has no default rule at all; QR's default is two custom calls that a plugin may not know. Here
both become loops of ordinary operations, which any StableHLO device runs; svd, pinv, lstsq and
matrix rank follow, because their default rules use these two. Still without a rule: eig, schur,
hessenberg, tridiagonal, pivoted QR (JAX raises NotImplementedError when it lowers them).

Everything computes in the operand's dtype, f16 and bf16 in f32. Batches are mapped over.
"""
import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

# Cyclic Jacobi converges quadratically: f32 needs 6 to 8 sweeps, f64 8 to 10 at n = 1000.
MAX_SWEEPS = 24


def _computing_dtype(dtype):
    return jnp.promote_types(dtype, jnp.float32)


def _over_batch(function, core_rank, *operands):
    """function over the leading dimensions of operands[0] beyond its core_rank last ones."""
    batch = operands[0].shape[:operands[0].ndim - core_rank]
    if not batch:
        return function(*operands)
    if 0 in batch:
        one = [jax.ShapeDtypeStruct(x.shape[len(batch):], x.dtype) for x in operands]
        return jax.tree.map(lambda x: jnp.zeros(batch + x.shape, x.dtype),
                            jax.eval_shape(function, *one))
    flat = [x.reshape((math.prod(batch),) + x.shape[len(batch):]) for x in operands]
    results = jax.vmap(function)(*flat)
    return jax.tree.map(lambda x: x.reshape(batch + x.shape[1:]), results)


def _jacobi(a, sort):
    """Hermitian a [n, n] -> (vectors [n, n] in columns, values [n]).

    Two-sided Jacobi rotations on n/2 disjoint pairs at a time (Golub and Van Loan, Matrix
    Computations, 8.5; pairs meet as in a round-robin tournament, 8.5.5). Pair i stands at i and
    i + half; after each round all players but the first move one seat on.
    """
    n = a.shape[0]
    real = jnp.finfo(a.dtype).dtype
    if n <= 1:
        return jnp.ones_like(a), jnp.real(jnp.diagonal(a)).astype(real)
    half = (n + 1) // 2
    size = 2 * half
    scale = jnp.max(jnp.abs(a))
    scale = jnp.where(scale > 0, scale, 1).astype(real)
    work = jnp.zeros((size, size), a.dtype).at[:n, :n].set(a / scale.astype(a.dtype))
    seats = list(range(size))
    top, bottom = seats[:half], seats[half:]
    moved = ([top[0], bottom[0], *top[1:-1]], [*bottom[1:], top[-1]]) if half > 1 else (top, bottom)
    move = jnp.array(moved[0] + moved[1])

    def rotate(left, right, sin, part, phase):
        # cos = 1 - sin * part. In this form (Rutishauser's) a small angle changes little, so that
        # rounding of the angle costs little orthogonality.
        return (left - sin * (phase * right + part * left),
                right + sin * (jnp.conj(phase) * left - part * right))


    def one_round(_, state):
        work, vectors = state
        diagonal = jnp.real(jnp.diagonal(work))
        off = jnp.diagonal(work, half)
        length = jnp.abs(off)
        needed = length > 0
        safe = jnp.where(needed, length, 1)
        tau = (diagonal[half:] - diagonal[:half]) / (2 * safe)
        tangent = jnp.where(tau >= 0, 1, -1) / (jnp.abs(tau) + jnp.sqrt(1 + tau * tau))
        tangent = jnp.where(needed, tangent, 0).astype(real)
        cos = 1 / jnp.sqrt(1 + tangent * tangent)
        sin = tangent * cos
        part = sin / (1 + cos)
        phase = jnp.where(needed, jnp.conj(off) / safe.astype(a.dtype), 1)
        sin, part = sin.astype(a.dtype), part.astype(a.dtype)
        # Columns, then rows by the conjugate.
        work = jnp.concatenate(rotate(work[:, :half], work[:, half:], sin, part, phase), 1)
        work = jnp.concatenate(rotate(work[:half], work[half:], sin[:, None], part[:, None],
                                      jnp.conj(phase)[:, None]), 0)
        vectors = jnp.concatenate(rotate(vectors[:, :half], vectors[:, half:], sin, part, phase), 1)
        return work[move][:, move], vectors[:, move]

    outside = 1 - jnp.eye(size, dtype=real)
    square = lambda x: jnp.square(jnp.real(x)) + jnp.square(jnp.imag(x))
    norm2 = jnp.sum(square(work))
    limit2 = norm2 * jnp.finfo(real).eps ** 2

    def go_on(state):
        work, _, sweep = state
        return (jnp.sum(square(work) * outside) > limit2) & (sweep < MAX_SWEEPS)

    def one_sweep(state):
        work, vectors, sweep = state
        return (*lax.fori_loop(0, size - 1, one_round, (work, vectors)), sweep + 1)

    work, vectors, _ = lax.while_loop(go_on, one_sweep,
                                      (work, jnp.eye(size, dtype=a.dtype), jnp.int32(0)))
    values = jnp.real(jnp.diagonal(work))
    # An odd n got an empty row and column, which no rotation mixes with the others; it is last
    # when sorted by "padding" first.
    padding = jnp.abs(vectors[-1]) > 0.5 if size > n else jnp.zeros(size, bool)
    keys = (padding, values) if sort else (padding,)
    order = lax.sort((*(k.astype(real) for k in keys), jnp.arange(size, dtype=jnp.int32)),
                     num_keys=len(keys), is_stable=True)[-1][:n]
    good = jnp.isfinite(norm2)
    nan = jnp.asarray(jnp.nan, real)
    return (jnp.where(good, vectors[:n][:, order], nan.astype(a.dtype)),
            jnp.where(good, values[order] * scale, nan))


def eigh(x, *, lower, sort_eigenvalues=True, subset_by_index=None, **_):
    """Rule for eigh_p: [..., n, n] -> (vectors, values ascending). Reads one triangle."""
    dtype = _computing_dtype(x.dtype)
    a = x.astype(dtype)
    half = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    diagonal = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1)).astype(dtype)
    eye = jnp.eye(x.shape[-1], dtype=dtype)
    # Not a product with eye: infinity times zero would spread NaN.
    full = jnp.where(eye != 0, diagonal[..., None, :],
                     half + jnp.conj(jnp.swapaxes(half, -1, -2)))
    sort = sort_eigenvalues or subset_by_index is not None
    vectors, values = _over_batch(functools.partial(_jacobi, sort=sort), 2, full)
    if subset_by_index is not None:
        first, last = subset_by_index
        vectors, values = vectors[..., first:last], values[..., first:last]
    return vectors.astype(x.dtype), values.astype(jnp.finfo(x.dtype).dtype)


def _reflect(a):
    """a [m, n] -> (packed [m, n], taus [min(m, n)]), as LAPACK's geqrf packs them."""
    m, n = a.shape
    count = min(m, n)
    if count == 0:
        return a, jnp.zeros(0, a.dtype)
    rows, columns = jnp.arange(m), jnp.arange(n)
    real = jnp.finfo(a.dtype).dtype

    def step(k, state):
        a, taus = state
        column = lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        scale = jnp.max(jnp.where(rows >= k, jnp.abs(column), 0))
        safe = jnp.where(scale > 0, scale, 1).astype(a.dtype)
        below = jnp.where(rows > k, column, 0) / safe
        alpha = column[k] / safe
        rest = jnp.sum(jnp.square(jnp.real(below)) + jnp.square(jnp.imag(below)))
        trivial = (rest == 0) & (jnp.imag(alpha) == 0)
        norm = jnp.sqrt(jnp.square(jnp.real(alpha)) + jnp.square(jnp.imag(alpha)) + rest)
        beta = jnp.where(jnp.real(alpha) >= 0, -norm, norm).astype(real)
        beta = jnp.where(trivial, 1, beta).astype(a.dtype)
        tau = jnp.where(trivial, 0, (beta - alpha) / beta)
        v = below / jnp.where(trivial, 1, alpha - beta)
        v = jnp.where(rows == k, 1, v).astype(a.dtype)
        product = jnp.einsum('m,mn->n', jnp.conj(v), a, precision='highest')
        update = a - jnp.conj(tau) * v[:, None] * product[None, :]
        new = jnp.where(columns[None, :] > k, update, a)
        diagonal = jnp.where(trivial, column[k], beta * safe)
        packed = jnp.where(rows > k, v, jnp.where(rows == k, diagonal, column))
        new = jnp.where(columns[None, :] == k, packed[:, None], new)
        return new, taus.at[k].set(tau)

    return lax.fori_loop(0, count, step, (a, jnp.zeros(count, a.dtype)))


def geqrf(x):
    """Rule for geqrf_p: [..., m, n] -> (packed reflectors and R, taus)."""
    packed, taus = _over_batch(_reflect, 2, x.astype(_computing_dtype(x.dtype)))
    return packed.astype(x.dtype), taus.astype(x.dtype)


def _product(packed, taus):
    m, n = packed.shape
    count = taus.shape[0]
    if packed.size == 0:
        return packed
    rows = jnp.arange(m)

    def step(i, q):
        k = count - 1 - i
        v = lax.dynamic_index_in_dim(packed, k, 1, keepdims=False)
        v = jnp.where(rows > k, v, jnp.where(rows == k, 1, 0)).astype(q.dtype)
        product = jnp.einsum('m,mn->n', jnp.conj(v), q, precision='highest')
        return q - taus[k] * v[:, None] * product[None, :]

    return lax.fori_loop(0, count, step, jnp.eye(m, n, dtype=packed.dtype))


def householder_product(packed, taus):
    """Rule for householder_product_p: the first n columns of H(0) H(1) ... -> [..., m, n]."""
    dtype = _computing_dtype(packed.dtype)
    return _over_batch(_product, 2, packed.astype(dtype), taus.astype(dtype)).astype(packed.dtype)


def register(platform):
    """Makes these the lowering rules of platform, which must be registered already."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    for primitive, rule, several in (
            (linalg.eigh_p, eigh, True), (linalg.geqrf_p, geqrf, True),
            (linalg.householder_product_p, householder_product, False)):
        mlir.register_lowering(primitive, mlir.lower_fun(rule, multiple_results=several),
                               platform=platform)
