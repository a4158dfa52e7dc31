# SPDX-License-Identifier: Apache-2.0
"""Linear algebra of the package, by its defining equations.

With LAPACK each call is run on the device. The rules for plugins without it are loops of ordinary
operations, the same for all platforms: these are lowered for the platform under test and run by
jaxlib's CPU, and by the device itself in a process of its own.
"""
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from factors import ROOM, adjoint

RELEASE = tuple(map(int, jax.__version__.split('.')[:2]))


@pytest.fixture(params=['device', pytest.param('lowered', marks=pytest.mark.any_platform)])
def run(request, device, cpu, shim, ours, platform):
    if not shim:
        pytest.skip('the package brings these rules')
    if request.param == 'device':
        return on_device(device, ours)

    def lowered(f, *args):
        from hekla import jax_linalg
        from jax._src.interpreters import mlir
        rules = mlir._platform_specific_lowerings[platform]
        with_lapack = dict(rules)
        rules.clear()
        jax_linalg.register(platform)
        try:
            exported = jax.export.export(
                jax.jit(f), platforms=[platform],
                disabled_checks=[jax.export.DisabledSafetyCheck.platform()])(*args)
        finally:
            rules.update(with_lapack)
        assert 'custom_call' not in exported.mlir_module()
        with jax.default_device(cpu):
            results = jax.jit(exported.call)(*jax.device_put(args, cpu))
        return [np.asarray(x) for x in jax.tree.leaves(results)]
    return lowered


def on_device(device, ours):
    if not ours:
        pytest.skip('JAX uses its CPU rules, i.e. LAPACK, on a foreign CPU plugin')
    return lambda f, *args: [np.asarray(x) for x in jax.tree.leaves(
        jax.jit(f)(*jax.device_put(args, device)))]


@pytest.fixture
def lapack(device, shim, ours, platform):
    """What runs on the device by LAPACK alone."""
    if not shim:
        pytest.skip('the package brings these rules')
    import hekla
    if not hekla.has_lapack(hekla.plugin_path(platform)):
        pytest.skip('built without LAPACK: test_without_lapack says what is refused then')
    with jax.enable_x64(True):
        yield on_device(device, ours)


def matrix(*shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(dtype)


def near(got, want, size):
    eps = np.finfo(got.dtype).eps
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=ROOM * eps * max(1.0, size))


@pytest.mark.parametrize('dtype', [np.float32, np.complex64])
@pytest.mark.parametrize('n', [1, 2, pytest.param(5, marks=pytest.mark.quick), 12])
def test_eigh(run, dtype, n):
    a = matrix(2, n, n, dtype=dtype)
    a = a + adjoint(a)
    for lower in (True, False):
        w, v = run(lambda a, lower=lower: tuple(
            jnp.linalg.eigh(a, UPLO='L' if lower else 'U', symmetrize_input=False)), a)
        assert w.dtype == np.float32 and v.dtype == dtype
        near((v * w[..., None, :]) @ adjoint(v), a, np.abs(a).max() * n)
        near(adjoint(v) @ v, np.broadcast_to(np.eye(n, dtype=dtype), v.shape), n)
        near(w, np.linalg.eigvalsh(a), np.abs(a).max() * n)


def test_eigh_special_matrices(run):
    for a in (np.zeros((4, 4)), np.eye(5) * 3, np.diag([1e30, -1e-30, 2.0]), np.ones((3, 3))):
        a = a.astype(np.float32)
        w, v = run(lambda x: tuple(jnp.linalg.eigh(x)), a)
        near(w, np.linalg.eigvalsh(a), np.abs(a).max() * len(a))
        near(v.T @ v, np.eye(len(a), dtype=np.float32), len(a))
    w, _ = run(lambda x: tuple(jnp.linalg.eigh(x)), np.full((3, 3), np.nan, np.float32))
    assert np.isnan(w).all()
    for shape in ((0, 0), (0, 3, 3)):
        assert run(lambda x: tuple(jnp.linalg.eigh(x)), np.zeros(shape, np.float32))[1].size == 0


def test_eigh_gradient(run):
    a = matrix(4, 4)
    a = a + a.T
    (g,) = run(jax.grad(lambda x: jnp.linalg.eigvalsh(x)[-1]), a)
    v = np.linalg.eigh(a)[1][:, -1:]
    near(g, v @ v.T, 10)


@pytest.mark.parametrize('dtype', [np.float32, np.complex64])
@pytest.mark.parametrize('shape', [pytest.param((5, 3), marks=pytest.mark.quick), (3, 5), (4, 4),
                                   (1, 1), (2, 6, 4)])
def test_qr(run, dtype, shape):
    a = matrix(*shape, dtype=dtype)
    q, r = run(lambda x: tuple(jnp.linalg.qr(x)), a)
    size = np.abs(a).max() * max(shape)
    near(q @ r, a, size)
    near(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), adjoint(q).shape[:-1] +
                                         (q.shape[-1],)), max(shape))
    near(np.tril(r, -1), np.zeros_like(r), size)
    q, r = run(lambda x: tuple(jnp.linalg.qr(x, mode='complete')), a)
    near(q @ r, a, size)


def test_qr_empty_and_zero(run):
    q, r = run(lambda x: tuple(jnp.linalg.qr(x)), np.zeros((4, 2), np.float32))
    near(q @ r, np.zeros((4, 2), np.float32), 1)
    near(q.T @ q, np.eye(2, dtype=np.float32), 1)
    for shape in ((0, 2), (3, 0), (0, 3, 2)):
        run(lambda x: tuple(jnp.linalg.qr(x)), np.zeros(shape, np.float32))


@pytest.mark.parametrize('shape', [(5, 3), (3, 5), (4, 4)])
def test_svd_and_what_uses_it(run, shape):
    a = matrix(*shape)
    u, s, vt = run(lambda x: tuple(jnp.linalg.svd(x, full_matrices=False)), a)
    size = np.abs(a).max() * max(shape)
    near((u * s) @ vt, a, size)
    near(s, np.linalg.svd(a, compute_uv=False), size)
    condition = s[0] / s[-1]
    near(run(jnp.linalg.pinv, a)[0], np.linalg.pinv(a), condition / s[-1])
    assert int(run(jnp.linalg.matrix_rank, a)[0]) == min(shape)
    b = matrix(shape[0], seed=1)
    near(run(lambda x, y: jnp.linalg.lstsq(x, y)[0], a, b)[0],
         np.linalg.lstsq(a, b, rcond=None)[0], condition ** 2 * np.abs(b).max() / s[-1])


# --- by LAPACK alone ---

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
# Both sides of what is cut into blocks, pieces and tiles.
# LAPACK is the host's for all devices: the sizes at which it changes its ways are tried on one.
HOST = pytest.mark.any_platform
SIZES = [1, pytest.param(2, marks=HOST), pytest.param(5, marks=pytest.mark.quick),
         *(pytest.param(n, marks=HOST) for n in (33, 63, 64)), 65, 257]
SHAPES = [(1, 1), (2, 5), pytest.param((33, 64), marks=HOST), (65, 33),
          pytest.param((257, 129), marks=HOST), pytest.param((3, 40, 40), marks=HOST), (2, 3, 7, 5)]


def eye_like(a, n):
    return np.broadcast_to(np.eye(n, dtype=a.dtype), a.shape[:-2] + (n, n))


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('n', SIZES)
def test_eig_schur_hessenberg_tridiagonal(lapack, dtype, n):
    a = matrix(n, n, dtype=dtype)
    size = np.abs(a).max() * n
    w, left, right = lapack(lambda x: lax.linalg.eig(x), a)
    assert np.iscomplexobj(w) and np.iscomplexobj(right)
    near(a @ right, right * w, size)
    near(adjoint(left) @ a, w[:, None] * adjoint(left), size)
    near(np.linalg.norm(right, axis=0), np.ones(n, np.finfo(dtype).dtype), 1)
    t, z = lapack(jax.scipy.linalg.schur, a)
    near(z @ t @ adjoint(z), a, size)
    near(adjoint(z) @ z, eye_like(z, n), n)
    assert not np.tril(t, -2).any()
    if n > 1:
        h, q = lapack(lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True), a)
        near(q @ h @ adjoint(q), a, size)
        assert not np.tril(h, -2).any()
    s = a + adjoint(a)
    for lower in (True, False):
        _, d, e, _ = lapack(lambda x, lower=lower: lax.linalg.tridiagonal(x, lower=lower), s)
        t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
        near(np.linalg.eigvalsh(t), np.linalg.eigvalsh(s), 2 * size)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('n', SIZES)
def test_eigh_of_all_types(lapack, dtype, n):
    a = matrix(2, n, n, dtype=dtype)
    a = a + adjoint(a)
    # The other triangle is not read.
    for uplo, part in (('L', np.tril), ('U', np.triu)):
        w, v = lapack(lambda x, uplo=uplo: tuple(
            jnp.linalg.eigh(x, UPLO=uplo, symmetrize_input=False)), part(a))
        size = np.abs(a).max() * n
        near((v * w[..., None, :]) @ adjoint(v), a, size)
        near(adjoint(v) @ v, eye_like(v, n), n)
        assert (np.diff(w) >= 0).all()


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('shape', SHAPES)
def test_svd_qr_lu_of_all_types(lapack, dtype, shape):
    a = matrix(*shape, dtype=dtype)
    m, n = shape[-2:]
    size = np.abs(a).max() * max(m, n)
    for full, algorithm in itertools.product((False, True), ('DEFAULT', 'QR')):
        u, s, vt = lapack(lambda x, full=full, algorithm=algorithm: lax.linalg.svd(
            x, full_matrices=full, algorithm=getattr(lax.linalg.SvdAlgorithm, algorithm)), a)
        k = min(m, n)
        near((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a, size)
        near(adjoint(u) @ u, eye_like(u, u.shape[-1]), m)
        near(vt @ adjoint(vt), eye_like(vt, vt.shape[-2]), n)
    near(lapack(lambda x: jnp.linalg.svd(x, compute_uv=False), a)[0], s, size)
    for mode in ('reduced', 'complete'):
        q, r = lapack(lambda x, mode=mode: tuple(jnp.linalg.qr(x, mode=mode)), a)
        near(q @ r, a, size)
        near(adjoint(q) @ q, eye_like(q, q.shape[-1]), m)
    q, r, p = lapack(lambda x: jax.scipy.linalg.qr(x, mode='economic', pivoting=True), a)
    near(q @ r, np.take_along_axis(a, p[..., None, :], -1), size)
    lu, pivots, permutation = lapack(lambda x: lax.linalg.lu(x), a)
    k = min(m, n)
    low = np.tril(lu[..., :k], -1) + np.eye(m, k, dtype=dtype)
    near(low @ np.triu(lu[..., :k, :]), np.take_along_axis(a, permutation[..., None], -2), size)
    assert pivots.dtype == permutation.dtype == np.int32


@pytest.mark.parametrize('dtype', DTYPES)
# About the sizes from which LAPACK takes them, and more than a block of the compiler's (64).
@pytest.mark.parametrize('n', [1, 5, 47, 48, 65, 127, 128, 257])
def test_cholesky_and_solves(lapack, dtype, n):
    a = matrix(2, n, n, dtype=dtype)
    p = (a @ adjoint(a) / n + np.eye(n)).astype(dtype)
    l, = lapack(jnp.linalg.cholesky, p)
    near(l @ adjoint(l), p, np.abs(p).max() * n)
    near(np.triu(l, 1), np.zeros_like(l), 0)
    upper, = lapack(lambda x: jax.scipy.linalg.cholesky(x, lower=False), p)
    near(adjoint(upper) @ upper, p, np.abs(p).max() * n)
    b = matrix(2, n, 7, dtype=dtype, seed=1)
    for lower, left, transpose, conjugate in itertools.product((0, 1), (0, 1), (0, 1), (0, 1)):
        t = (np.tril if lower else np.triu)(a) / n + 2 * np.eye(n)
        t = t.astype(dtype)
        # What is not of the triangle is not read.
        dirty = np.where((np.tril if lower else np.triu)(np.ones((n, n))) > 0, t, np.nan)
        rhs = b if left else b.swapaxes(-1, -2)
        x, = lapack(lambda t, b: lax.linalg.triangular_solve(
            t, b, left_side=bool(left), lower=bool(lower), transpose_a=bool(transpose),
            conjugate_a=bool(conjugate)), dirty.astype(dtype), rhs)
        op = t.conj() if conjugate else t
        op = op.swapaxes(-1, -2) if transpose else op
        near(op @ x if left else x @ op, rhs, np.abs(x).max() * n)
    x, = lapack(jnp.linalg.solve, p, b)
    near(p @ x, b, np.abs(x).max() * n * 4)
    near(lapack(jnp.linalg.slogdet, p)[1], np.linalg.slogdet(p)[1], n)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('n', [2, 3, 8, 13, 16, 17])
def test_batches_of_small_matrices(lapack, dtype, n):
    # Of more elements than host steps take, no whole number of vectors, bad ones among them.
    batch = 1100 // n // n + 19
    a = matrix(batch, n, n, dtype=dtype)
    p = (a @ adjoint(a) + n * np.eye(n)).astype(dtype)
    singular, hole, indefinite = 1, batch // 2, batch - 1
    good = np.delete(np.arange(batch), [singular, hole, indefinite])
    size = np.abs(p).max() * n

    bad = p.copy()
    bad[indefinite, n - 1, n - 1] = -1
    bad[hole, n - 1, 0] = bad[hole, 0, n - 1] = np.nan
    l, = lapack(jnp.linalg.cholesky, bad)
    near(l[good] @ adjoint(l[good]), p[good], size)
    assert np.isnan(np.diagonal(l[[hole, indefinite]], 0, -2, -1)).all() and not np.triu(l, 1).any()

    # Without a large diagonal, so that rows change places.
    bad = a.copy()
    bad[singular, :, 0] = 0
    bad[hole, 0, 0] = np.nan
    lu, pivots, rows = lapack(lambda x: lax.linalg.lu(x), bad)
    fine = np.delete(np.arange(batch), hole)
    low = np.tril(lu, -1) + np.eye(n, dtype=dtype)
    near(low[fine] @ np.triu(lu[fine]), np.take_along_axis(bad, rows[..., None], -2)[fine], n)
    assert np.isnan(lu[hole]).any() and (np.sort(rows) == np.arange(n)).all()
    some = slice(batch - 5, batch)
    for whole, part in zip((lu, pivots, rows), lapack(lambda x: lax.linalg.lu(x), bad[some])):
        assert np.array_equal(whole[some], part)
    det, = lapack(jnp.linalg.det, bad)
    assert det[singular] == 0 and np.isnan(det[hole])
    near(det[good], np.linalg.det(a[good]), np.abs(np.linalg.det(a[good])).max() * n)

    b = matrix(batch, n, 5, dtype=dtype, seed=1)
    x, = lapack(jnp.linalg.solve, p, b)
    near(p @ x, b, n)
    x, = lapack(jnp.linalg.inv, p)
    near(p @ x, np.broadcast_to(np.eye(n), p.shape), n)
    for lower, left, transpose in itertools.product((0, 1), (0, 1), (0, 1)):
        t = ((np.tril if lower else np.triu)(a) / n + 2 * np.eye(n)).astype(dtype)
        rhs = b if left else b.swapaxes(-1, -2)
        x, = lapack(lambda t, b: lax.linalg.triangular_solve(
            t, b, left_side=bool(left), lower=bool(lower), transpose_a=bool(transpose)), t, rhs)
        op = t.swapaxes(-1, -2) if transpose else t
        near(op @ x if left else x @ op, rhs, np.abs(x).max() * n)

    bad = p.copy()
    bad[hole, n - 1, n - 1] = np.inf
    w, v = lapack(jnp.linalg.eigh, bad)
    near(v[good] * w[good][:, None] @ adjoint(v[good]), p[good], size)
    near(w[good], np.linalg.eigvalsh(p[good]), size)
    assert np.isnan(w[hole]).all() and np.isnan(v[hole]).all()
    for full in (False, True):
        tall = bad[:, :, :n - 1]
        for x in (tall, tall.swapaxes(1, 2)):
            u, s, vt = lapack(lambda x: tuple(jnp.linalg.svd(x, full_matrices=full)), x)
            k = n - 1
            near((u[..., :k] * s[:, None] @ vt[:, :k])[good], x[good], size)
            near((adjoint(u) @ u)[good], np.broadcast_to(np.eye(u.shape[-1]), u[good].shape[:1] + (u.shape[-1],) * 2), n)
            near(s[good], np.linalg.svd(x[good])[1], size)
    part_w, part_v = lapack(jnp.linalg.eigh, bad[batch - 17:])
    assert np.array_equal(part_w, w[batch - 17:], True) and np.array_equal(part_v, v[batch - 17:], True)

    bad = a[:, :, :n - 1].copy()
    bad[singular] = 0
    bad[hole, 0, 0] = np.nan
    q, r = lapack(lambda x: tuple(jnp.linalg.qr(x, mode='complete')), bad)
    near((q @ r)[fine], bad[fine], n)
    near((adjoint(q) @ q)[fine], np.broadcast_to(np.eye(n), q[fine].shape), n)
    assert np.isnan(q[hole]).any()


@pytest.mark.parametrize('dtype', DTYPES)
def test_failures_become_nan_matrix_by_matrix(lapack, dtype):
    for n in (3, 70):
        good = matrix(n, n, dtype=dtype)
        good = good @ adjoint(good) + n * np.eye(n, dtype=dtype)
        indefinite = good - 10 * n * np.eye(n, dtype=dtype)
        hole = good.copy()
        hole[n // 2, 1] = hole[1, n // 2] = np.nan
        l, = lapack(jnp.linalg.cholesky, np.stack([good, indefinite, hole]).astype(dtype))
        assert np.isfinite(l[0]).all()
        assert all(np.isnan(np.diagonal(x)).all() for x in l[1:])
        batch = np.stack([good, hole]).astype(dtype)
        for f in (jnp.linalg.eigvalsh, lambda x: jnp.linalg.svd(x)[1],
                  lambda x: lax.linalg.eig(x)[0], lambda x: lax.linalg.schur(x)[0]):
            r, = lapack(f, batch)
            assert np.isfinite(r[0]).all() and np.isnan(r[1]).all()
        # A singular matrix has an LU factorisation.
        lu, *_ = lapack(lambda x: lax.linalg.lu(x), np.zeros((n, n), dtype))
        assert not lu.any()


@pytest.mark.parametrize('dtype', [np.float32, np.complex128])
def test_empty(lapack, dtype):
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        a = np.zeros(shape, dtype)
        for f in (jnp.linalg.eigh, jnp.linalg.cholesky, lambda x: lax.linalg.eig(x),
                  lambda x: lax.linalg.lu(x), lambda x: lax.linalg.schur(x)):
            assert all(x.size == 0 for x in lapack(f, a) if x.ndim > 1)
    for shape in ((0, 2), (3, 0), (0, 3, 2)):
        a = np.zeros(shape, dtype)
        q, r = lapack(lambda x: tuple(jnp.linalg.qr(x, mode='complete')), a)
        near(q @ r, a, 1)
        u, s, vt = lapack(lambda x: tuple(jnp.linalg.svd(x)), a)
        near(adjoint(u) @ u, eye_like(u, u.shape[-1]), 1)
        near(vt @ adjoint(vt), eye_like(vt, vt.shape[-1]), 1)


def test_tridiagonal_solve(lapack):
    for dtype in DTYPES:
        for n in (3, 65):
            d = matrix(n, dtype=dtype) + 5
            low, high = matrix(n, dtype=dtype, seed=1), matrix(n, dtype=dtype, seed=2)
            low[0] = high[-1] = 0
            b = matrix(n, 4, dtype=dtype, seed=3)
            x, = lapack(lax.linalg.tridiagonal_solve, low, d.astype(dtype), high, b)
            t = np.diag(d) + np.diag(low[1:], -1) + np.diag(high[:-1], 1)
            near(t.astype(dtype) @ x, b, 10)


@pytest.mark.skipif(not hasattr(lax.linalg, 'tridiagonal_solve')
                    or 'perturb_singular' not in inspect.signature(
                        lax.linalg.tridiagonal_solve).parameters,
                    reason='this release has no perturb_singular')
def test_singular_tridiagonal_solve(lapack):
    def solve(*args):
        return lax.linalg.tridiagonal_solve(*args, perturb_singular=True)
    with jax.numpy_dtype_promotion('strict'), jax.numpy_rank_promotion('raise'):
        lapack(solve, *np.ones((3, 2, 5), np.float32), np.ones((2, 5, 3), np.float32))
    for dtype in DTYPES:
        eps = np.finfo(dtype).eps
        for n in (1, 2, 3, 65):
            d = matrix(2, n, dtype=dtype)  # not dominant: pivoting swaps rows
            low, high = matrix(2, n, dtype=dtype, seed=1), matrix(2, n, dtype=dtype, seed=2)
            low[:, 0] = high[:, -1] = 0
            b = matrix(2, n, 3, dtype=dtype, seed=3)
            x, = lapack(solve, low, d, high, b)
            for i in range(2):
                t = np.diag(d[i]) + np.diag(low[i, 1:], -1) + np.diag(high[i, :-1], 1)
                size = abs(t).max() * abs(x[i]).max() + abs(b[i]).max()
                assert abs(t @ x[i] - b[i]).max() <= 10 * ROOM * eps * size
        # Inverse iteration: a vector of the null space of a graph's Laplacian is constant.
        d, off = np.full(9, 2, dtype), np.full(9, -1, dtype)
        d[[0, -1]] = 1
        x, = lapack(solve, off, d, off, matrix(9, 1, dtype=dtype) + 2)
        assert np.isfinite(x).all() and abs(x).max() > 1e3
        np.testing.assert_allclose(x / x[0], np.ones_like(x), atol=ROOM * eps * 9)
        x, = lapack(solve, 0 * off, 0 * d, 0 * off, matrix(9, 1, dtype=dtype))
        assert np.isfinite(x).all()


def test_strict_promotion_of_types(lapack):
    a = matrix(5, 5)
    with jax.numpy_dtype_promotion('strict'):
        w, v = lapack(lambda x: tuple(jnp.linalg.eig(x)), a)
    near(a @ v, v * w, 20)


def test_narrow_types_and_subsets(lapack):
    a = matrix(9, 9)
    a = a + a.T
    # JAX itself refuses these types from 0.11 on.
    for dtype in (jnp.float16, jnp.bfloat16) if RELEASE < (0, 11) else ():
        v, w = lapack(lambda x: lax.linalg.eigh(x), jnp.asarray(a, dtype))
        assert w.dtype == dtype and v.dtype == dtype
        np.testing.assert_allclose(w.astype(np.float32), np.linalg.eigvalsh(a), atol=0.1)
    v, w = lapack(lambda x: lax.linalg.eigh(x, subset_by_index=(2, 5)), a)
    near(w, np.linalg.eigvalsh(a)[2:5], 20)
    near(a @ v, v * w, 20)


def test_inside_loops_and_gradients(lapack):
    a = matrix(5, 5)
    a = a @ a.T + 5 * np.eye(5, dtype=np.float32)

    def step(x, _):
        w, v = jnp.linalg.eigh(x)
        return (v * jnp.sqrt(w)) @ v.T + jnp.eye(5, dtype=x.dtype), w[0]
    got = lapack(lambda x: lax.scan(step, x, None, length=4), a)
    want = a
    for _ in range(4):
        w, v = np.linalg.eigh(want)
        want = (v * np.sqrt(w)) @ v.T + np.eye(5, dtype=np.float32)
    near(got[0], want, 100)
    g, = lapack(jax.grad(lambda x: jnp.linalg.slogdet(x)[1]), a)
    near(g, np.linalg.inv(a).T, 10)
    g, = lapack(jax.grad(lambda x: jnp.linalg.svd(x, compute_uv=False).sum()), matrix(4, 3))
    u, _, vt = np.linalg.svd(matrix(4, 3), full_matrices=False)
    near(g, u @ vt, 10)


def test_donated_operands(lapack, device):
    """A result may have its operand's memory, which LAPACK would read and write at once."""
    a = matrix(70, 70)
    a = a @ a.T + 70 * np.eye(70, dtype=np.float32)
    for f in (jnp.linalg.cholesky, lambda x: jnp.linalg.eigh(x)[1], lambda x: lax.linalg.lu(x)[0],
              lambda x: lax.linalg.triangular_solve(jnp.eye(70, dtype=x.dtype) * 2, x)):
        want, = lapack(f, a)
        got = jax.jit(f, donate_argnums=0)(jax.device_put(a, device))
        assert np.asarray(got).tobytes() == want.tobytes()


def test_same_bits_each_time(lapack):
    a = matrix(300, 300)
    for f in (lambda x: tuple(jnp.linalg.svd(x)), lambda x: tuple(jnp.linalg.eigh(x)),
              lambda x: lax.linalg.lu(x), lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(300))):
        first, second = lapack(f, a), lapack(f, a)
        assert all(x.tobytes() == y.tobytes() for x, y in zip(first, second))


def test_beside_other_copies_of_lapack(lapack, cpu):
    """SciPy's and jaxlib's OpenBLAS in the same process: neither takes the other's functions."""
    import scipy.linalg
    a = matrix(200, 200)
    a = a + a.T
    near(scipy.linalg.eigh(a)[0], lapack(jnp.linalg.eigvalsh, a)[0], 2000)
    with jax.default_device(cpu):
        near(np.asarray(jax.jit(jnp.linalg.eigvalsh)(jax.device_put(a, cpu))),
             np.linalg.eigvalsh(a), 2000)
    near(lapack(jnp.linalg.eigvalsh, a)[0], scipy.linalg.eigh(a)[0], 2000)


# What becomes a loop without LAPACK, with the error of its equations; what is refused, with the name
# in the error.
WITHOUT_LAPACK = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
jax.config.update('jax_enable_x64', True)
device = jax.devices(PLATFORM)[0]
b = np.random.default_rng(0).standard_normal((6, 6))
a = b @ b.T + 6 * np.eye(6)
def run(f):
    return jax.tree.map(np.asarray, jax.jit(f)(jax.device_put(a, device)))
w, v = run(jnp.linalg.eigh)
q, r = run(jnp.linalg.qr)
u, s, vt = run(jnp.linalg.svd)
l = run(jnp.linalg.cholesky)
lu, _, p = run(lambda x: lax.linalg.lu(x))
low = np.tril(lu, -1) + np.eye(6)
for error in (v * w @ v.T - a, q @ r - a, u * s @ vt - a, l @ l.T - a, low @ np.triu(lu) - a[p],
              run(lambda x: jnp.linalg.solve(x, x)) - np.eye(6)):
    assert np.abs(error).max() < 1e-11, error
def vendor(x):
    return jax.ffi.ffi_call('lapack_dpotrf_ffi', (jax.ShapeDtypeStruct(x.shape, x.dtype),
                            jax.ShapeDtypeStruct((), np.int32)))(x, uplo=np.uint8(ord('L')))
for name, f in {'eig': lambda x: lax.linalg.eig(x), 'schur': lambda x: lax.linalg.schur(x),
                'hessenberg': lambda x: lax.linalg.hessenberg(x),
                'tridiagonal': lambda x: lax.linalg.tridiagonal(x),
                'geqp3': lambda x: jax.scipy.linalg.qr(x, pivoting=True),
                'there is no LAPACK here': vendor}.items():
    try:
        run(f)
    except Exception as error:
        assert name in str(error), error
    else:
        raise AssertionError(f'{name} is not refused')
print('as said')
"""


def test_without_lapack(child, shim, ours, platform):
    if not (shim and ours):
        pytest.skip('the package brings these rules')
    done = child(WITHOUT_LAPACK.replace('PLATFORM', repr(platform)), HEKLA_LAPACK='off')
    assert done.stdout == 'as said\n', done.stderr
