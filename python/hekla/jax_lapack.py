# SPDX-License-Identifier: Apache-2.0
"""Lowering rules for linear algebra by LAPACK: the custom calls that JAX sends for its own CPU.

The plugins run these calls on the host (backends/reference/lapack_calls.h). The rules are written
with jax.ffi, not taken from JAX's CPU: those load SciPy and its copy of OpenBLAS first, 0.6 s.

A matrix for which LAPACK reports a failure becomes NaN. f16 and bf16 are computed in f32.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hekla import jax_tridiagonal

_LETTERS = {'float32': 's', 'float64': 'd', 'complex64': 'c', 'complex128': 'z'}


def _letter(c):
    return np.uint8(ord(c))


def _is_complex(dtype):
    return jnp.issubdtype(dtype, jnp.complexfloating)


def _real(dtype):
    return jnp.finfo(dtype).dtype


def _columns(rank):
    # Major to minor: batches of column-major matrices.
    return (*range(rank - 2), rank - 1, rank - 2)


def _call(routine, operands, results, **attributes):
    """The call of routine ('getrf', or of real and complex types: 'orgqr ungqr') on operands.

    results: shapes behind the batch, or arrays like them with a dtype: [(shape, dtype)].
    """
    matrix = max(operands, key=lambda x: x.ndim)
    batch = matrix.shape[:-2]
    dtype = matrix.dtype
    name = routine.split()[-1 if _is_complex(dtype) else 0]
    layout = lambda rank: _columns(rank) if rank == matrix.ndim else tuple(range(rank))
    shapes = [jax.ShapeDtypeStruct(batch + tuple(shape), of) for shape, of in results]
    call = jax.ffi.ffi_call(
        f'lapack_{_LETTERS[dtype.name]}{name}_ffi', shapes,
        input_layouts=[layout(x.ndim) for x in operands],
        output_layouts=[layout(len(x.shape)) for x in shapes])
    return call(*operands, **attributes)


def _where(ok, x):
    """x where ok [batch], else NaN."""
    ok = ok.reshape(ok.shape + (1,) * (x.ndim - ok.ndim))
    nan = complex(np.nan, np.nan) if _is_complex(x.dtype) else np.nan
    return jnp.where(ok, x, jnp.asarray(nan, x.dtype))


def _eigh(x, *, lower, subset_by_index=None, **_):
    n = x.shape[-1]
    v, w, info = _call('syevd heevd', [x], [((n, n), x.dtype), ((n,), _real(x.dtype)),
                                            ((), np.int32)],
                       mode=_letter('V'), uplo=_letter('L' if lower else 'U'))
    v, w = _where(info == 0, v), _where(info == 0, w)
    if subset_by_index is not None:
        first, last = subset_by_index
        v, w = v[..., first:last], w[..., first:last]
    return [v, w]


def _svd(x, *, full_matrices, compute_uv, subset_by_index=None, algorithm=None, **_):
    m, n = x.shape[-2:]
    count = min(m, n)
    all_u, all_v = (m, n) if full_matrices else (count, count)
    batch = x.shape[:-2]
    if count == 0:
        s = jnp.zeros(batch + (0,), _real(x.dtype))
        eye = lambda rows, columns: jnp.broadcast_to(jnp.eye(rows, columns, dtype=x.dtype),
                                                     batch + (rows, columns))
        return [s, eye(m, all_u), eye(all_v, n)] if compute_uv else [s]
    name = 'DEFAULT' if algorithm is None else algorithm.name
    if name not in ('DEFAULT', 'QR', 'DIVIDE_AND_CONQUER'):
        raise NotImplementedError(f'svd by the algorithm {name} on a Hekla device; there are QR '
                                  'and DIVIDE_AND_CONQUER')
    mode = 'N' if not compute_uv else 'A' if full_matrices else 'S'
    _, s, u, vt, info = _call(
        'gesvd' if name == 'QR' else 'gesdd', [x],
        [((m, n), x.dtype), ((count,), _real(x.dtype)), ((m, all_u), x.dtype),
         ((all_v, n), x.dtype), ((), np.int32)], mode=_letter(mode))
    first, last = (0, None) if subset_by_index is None else subset_by_index
    ok = info == 0
    s = _where(ok, s)[..., first:last]
    if not compute_uv:
        return [s]
    if subset_by_index is not None:
        u, vt = u[..., first:last], vt[..., first:last, :]
    return [s, _where(ok, u), _where(ok, vt)]


def _lu(x, **_):
    m, n = x.shape[-2:]
    # With one result more than jaxlib's: the permutation, which in JAX is a loop over the pivots.
    lu, pivots, permutation, _ = _call('getrf', [x], [((m, n), x.dtype), ((min(m, n),), np.int32),
                                                      ((m,), np.int32), ((), np.int32)])
    return [lu, pivots - 1, permutation]


def _geqrf(x, **_):
    m, n = x.shape[-2:]
    return _call('geqrf', [x], [((m, n), x.dtype), ((min(m, n),), x.dtype)])


def _geqp3(x, columns, **_):
    m, n = x.shape[-2:]
    return _call('geqp3', [x, columns], [((m, n), x.dtype), ((n,), np.int32),
                                         ((min(m, n),), x.dtype)])


def _householder_product(x, taus, **_):
    return _call('orgqr ungqr', [x, taus], [(x.shape[-2:], x.dtype)])


def _ormqr(x, taus, c, *, left, transpose, **_):
    return _call('ormqr unmqr', [x, taus, c], [(c.shape[-2:], c.dtype)], left=np.bool_(left),
                 transpose=np.bool_(transpose))


def _eig(x, *, compute_left_eigenvectors, compute_right_eigenvectors, implementation=None, **_):
    if implementation is not None and implementation.name != 'LAPACK':
        raise NotImplementedError(f'eig by {implementation.name} on a Hekla device; there is LAPACK')
    n = x.shape[-1]
    wide = np.promote_types(x.dtype, np.complex64)  # whatever jax_numpy_dtype_promotion says
    parts = [((n,), x.dtype)] * (1 if _is_complex(x.dtype) else 2)
    mode = lambda wanted: _letter('V' if wanted else 'N')
    *w, left, right, info = _call(
        'geev', [x], [*parts, ((n, n), wide), ((n, n), wide), ((), np.int32)],
        compute_left=mode(compute_left_eigenvectors),
        compute_right=mode(compute_right_eigenvectors))
    results = [lax.complex(*w) if len(w) == 2 else w[0]]
    results += [left] * compute_left_eigenvectors + [right] * compute_right_eigenvectors
    return [_where(info == 0, x) for x in results]


def _schur(x, *, compute_schur_vectors, sort_eig_vals=False, **_):
    if sort_eig_vals:
        raise NotImplementedError('schur with sorted eigenvalues')
    n = x.shape[-1]
    values = [((n,), x.dtype)] * (1 if _is_complex(x.dtype) else 2)
    form, vectors, *_, info = _call(
        'gees', [x], [((n, n), x.dtype), ((n, n), x.dtype), *values, ((), np.int32),
                      ((), np.int32)],
        mode=_letter('V' if compute_schur_vectors else 'N'), sort=_letter('N'))
    results = [form, vectors] if compute_schur_vectors else [form]
    return [_where(info == 0, x) for x in results]


def _hessenberg(x, **_):
    n = x.shape[-1]
    a, taus, info = _call('gehrd', [x], [((n, n), x.dtype), ((n - 1,), x.dtype), ((), np.int32)],
                          low=np.int32(1), high=np.int32(n))
    return [_where(info == 0, a), _where(info == 0, taus)]


def _tridiagonal(x, *, lower, **_):
    n = x.shape[-1]
    real = _real(x.dtype)
    *results, info = _call(
        'sytrd hetrd', [x], [((n, n), x.dtype), ((n,), real), ((n - 1,), real),
                             ((n - 1,), x.dtype), ((), np.int32)],
        uplo=_letter('L' if lower else 'U'))
    return [_where(info == 0, x) for x in results]


def _tridiagonal_solve(dl, d, du, b, *, perturb_singular=False, **_):
    if perturb_singular:
        return [jax_tridiagonal.solve_perturbed(dl, d, du, b)]
    m, k = b.shape[-2:]
    vector = ((m,), b.dtype)
    *_, x, info = _call('gtsv', [dl, d, du, b], [vector, vector, vector, ((m, k), b.dtype),
                                                 ((), np.int32)])
    return [_where(info == 0, x)]


# Primitives whose rules have one result get it from a list of one.
_RULES = {'eigh_p': _eigh, 'svd_p': _svd, 'lu_p': _lu, 'geqrf_p': _geqrf, 'geqp3_p': _geqp3,
          'householder_product_p': _householder_product, 'ormqr_p': _ormqr, 'eig_p': _eig,
          'schur_p': _schur, 'hessenberg_p': _hessenberg, 'tridiagonal_p': _tridiagonal,
          'tridiagonal_solve_p': _tridiagonal_solve}

# Releases before 0.9 lack some.
_NOT_EVERYWHERE = {'geqp3_p', 'ormqr_p', 'tridiagonal_solve_p'}


def _in_wide_types(rule):
    """rule, with f16 and bf16 computed in f32."""
    def wide(*operands, **params):
        narrow = {x.dtype for x in operands} & {jnp.dtype(jnp.float16), jnp.dtype(jnp.bfloat16)}
        operands = [x.astype(jnp.float32) if x.dtype in narrow else x for x in operands]
        results = rule(*operands, **params)
        if not narrow:
            return results
        dtype, = narrow
        return [x.astype(dtype) if x.dtype == jnp.float32 else x for x in results]
    return wide


def register(platform):
    """Makes these the lowering rules of platform; AttributeError names the primitives that JAX lacks."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    missing = []
    for name, rule in _RULES.items():
        primitive = getattr(linalg, name, None)
        if primitive is None:
            missing.append(name)
        else:
            mlir.register_lowering(primitive,
                                   mlir.lower_fun(_in_wide_types(rule), multiple_results=True),
                                   platform=platform)
    if missing := sorted(set(missing) - _NOT_EVERYWHERE):
        raise AttributeError(f"jax._src.lax.linalg has no {', '.join(missing)}")
