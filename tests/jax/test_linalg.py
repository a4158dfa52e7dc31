# SPDX-License-Identifier: Apache-2.0
"""The package's rules for eigh and QR, and what stands on them, by their defining equations.

Each is run on the device, and once, as the rules are the same for all platforms, lowered for the
reference device's platform but run by jaxlib's CPU, which tells a mistake in the rule from one in the
plugin.
"""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

# A bound of numerical analysis, not of taste: these algorithms are backward stable, the error is a
# small multiple of n * eps * norm; n <= 12 here.
ROOM = 50


@pytest.fixture(params=['device', pytest.param('lowered', marks=pytest.mark.any_platform)])
def run(request, device, cpu, shim, ours, platform):
    if not shim:
        pytest.skip('the package brings these rules')
    if request.param == 'device':
        if not ours:
            pytest.skip('JAX uses its CPU rules, i.e. LAPACK, on a foreign CPU plugin')
        return lambda f, *args: [np.asarray(x) for x in jax.tree.leaves(
            jax.jit(f)(*jax.device_put(args, device)))]

    def lowered(f, *args):
        exported = jax.export.export(
            jax.jit(f), platforms=[platform],
            disabled_checks=[jax.export.DisabledSafetyCheck.platform()])(*args)
        assert 'custom_call' not in exported.mlir_module()
        with jax.default_device(cpu):
            results = jax.jit(exported.call)(*jax.device_put(args, cpu))
        return [np.asarray(x) for x in jax.tree.leaves(results)]
    return lowered


def matrix(*shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(dtype)


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


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
