# SPDX-License-Identifier: Apache-2.0
"""Tridiagonal systems that may be singular, as loops of ordinary operations.

LAPACK's gtsv gives no result for them. JAX's tridiagonal_solve(perturb_singular=True) moves tiny
pivots of the LU decomposition away from zero, by which eigenvectors come from inverse iteration.
"""
import jax.numpy as jnp
from jax import lax


def solve_perturbed(dl, d, du, b):
    """x [..., m, k] of A x = b, A with the diagonals dl (dl[0] unused), d, du (du[m-1] unused) [..., m].

    Gaussian elimination with partial pivoting; a pivot below eps * max |U| gets that much added in
    its own direction, so that the result is finite (LAPACK's lagts with job -1 does the same).
    """
    if b.size == 0:
        return b
    first = lambda x, axis: jnp.moveaxis(x, axis, 0)[..., None]
    dl, d, du, b = first(dl, -1), first(d, -1), first(du, -1), jnp.moveaxis(b, -2, 0)
    zero = jnp.zeros_like(d[0])
    du = du.at[-1].set(zero)

    def eliminate(row, below):
        # Rows start at the pivot's column: row has two entries, the one below three.
        (row_d, row_du, row_b), (low, mid, high, below_b) = row, below
        swap = abs(row_d) < abs(low)
        pivot, other = jnp.where(swap, low, row_d), jnp.where(swap, row_d, low)
        factor = jnp.where(pivot == zero, zero, other / jnp.where(pivot == zero, zero + 1, pivot))
        upper = (pivot, jnp.where(swap, mid, row_du), jnp.where(swap, high, zero),
                 jnp.where(swap, below_b, row_b))
        rest = (jnp.where(swap, row_du, mid) - factor * upper[1],
                jnp.where(swap, zero, high) - factor * upper[2],
                jnp.where(swap, row_b, below_b) - factor * upper[3])
        return rest, upper

    last, rows = lax.scan(eliminate, (d[0], du[0], b[0]), (dl[1:], d[1:], du[1:], b[1:]))
    pivots, first_upper, second_upper, right = (
        jnp.concatenate([above, end[None]])
        for above, end in zip(rows, (last[0], zero, zero, last[2])))

    # Ranks are equal throughout: JAX may be told to raise where they differ.
    largest = abs(jnp.stack([pivots, first_upper, second_upper])).max(axis=(0, 1))[None]
    tiny = jnp.where(largest == 0, jnp.ones_like(largest), largest) * jnp.finfo(d.dtype).eps
    size = abs(pivots)
    is_zero = size == 0
    direction = jnp.where(is_zero, jnp.ones_like(pivots),
                          pivots / jnp.where(is_zero, jnp.ones_like(size), size).astype(d.dtype))
    pivots = jnp.where(size < tiny, pivots + direction * tiny.astype(d.dtype), pivots)

    def substitute(below, row):
        one, two = below
        pivot, first_up, second_up, value = row
        x = (value - first_up * one - second_up * two) / pivot
        return (x, one), x

    nothing = jnp.zeros_like(b[0])
    _, x = lax.scan(substitute, (nothing, nothing), (pivots, first_upper, second_upper, right),
                    reverse=True)
    return jnp.moveaxis(x, 0, -2)
