#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Linear algebra on a Hekla device against jaxlib's CPU, in one process, two launches of each interleaved.

Prints for each function, size and dtype the best time of both (a busy machine only adds to a time) and
the ratio jaxlib / Hekla: above 1 Hekla is faster. At the end the geometric mean and the worst.

  .venv/jax-0.10.2/bin/python benchmarks/linalg.py
  .venv/jax-0.10.2/bin/python benchmarks/linalg.py --sizes 512 --dtypes float32 --only eigh,svd --repeat 9
  taskset -c 1 .venv/jax-0.10.2/bin/python benchmarks/linalg.py --cpu    # on a busy machine
"""
import argparse
import math
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Threads of jaxlib's OpenBLAS poll for work for 2^28 cycles after a call, 0.1 s at 2.6 GHz, and take a
# core from whoever comes next: the other side waits until they sleep. In seconds.
PAUSE = 0.15


def functions(jnp, jax):
    """{name: (function, what it takes: a general, s Hermitian, p positive definite, b a vector's block)}."""
    solve = jax.scipy.linalg

    def gaussian_process(p, b):
        factor = jnp.linalg.cholesky(p)
        weights = solve.cho_solve((factor, True), b)
        across = solve.solve_triangular(factor, p[:, :64], lower=True)
        return p[:64] @ weights, jnp.sum(jnp.abs(across) ** 2, 0), jnp.log(jnp.diagonal(factor)).sum()

    return {
        'eigh': (jnp.linalg.eigh, 's'), 'eigvalsh': (jnp.linalg.eigvalsh, 's'),
        'svd': (lambda a: jnp.linalg.svd(a, full_matrices=False), 'a'),
        'qr': (jnp.linalg.qr, 'a'), 'lu': (jax.lax.linalg.lu, 'a'),
        'solve': (jnp.linalg.solve, 'ab'), 'slogdet': (jnp.linalg.slogdet, 'a'),
        'det': (jnp.linalg.det, 'a'), 'inv': (jnp.linalg.inv, 'a'),
        'cholesky': (jnp.linalg.cholesky, 'p'),
        'triangular_solve': (lambda a, b: solve.solve_triangular(a, a, lower=True), 'pb'),
        'triangular_solve_64': (lambda a, b: solve.solve_triangular(a, b, lower=True), 'pb'),
        'gaussian_process': (gaussian_process, 'pb'),
        'pinv': (jnp.linalg.pinv, 'a'), 'lstsq': (lambda a, b: jnp.linalg.lstsq(a, b)[0], 'ab'),
        'eig': (jax.lax.linalg.eig, 'a'), 'schur': (solve.schur, 'a'),
        'hessenberg': (solve.hessenberg, 'a'),
    }


def arguments(np, wanted, n, dtype):
    rng = np.random.default_rng(n)

    def normal(*shape):
        x = rng.standard_normal(shape)
        if dtype.startswith('complex'):
            x = x + 1j * rng.standard_normal(shape)
        return x.astype(dtype)
    a = normal(n, n)
    makers = {'a': lambda: a, 's': lambda: a + a.conj().T, 'b': lambda: normal(n, 64),
              'p': lambda: (a @ a.conj().T / n + np.eye(n)).astype(dtype)}
    return [makers[letter]() for letter in wanted]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--platform', default='tbb')
    parser.add_argument('--sizes', default='512,1024')
    parser.add_argument('--dtypes', default='float32,float64,complex64,complex128')
    parser.add_argument('--only', default='')
    parser.add_argument('--repeat', type=int, default=5)
    parser.add_argument('--cpu', action='store_true',
                        help='processor time of the process, with one thread on both sides')
    options = parser.parse_args()
    os.environ['JAX_PLATFORMS'] = f'{options.platform},cpu'
    os.environ.setdefault('JAX_ENABLE_X64', '1')
    if options.cpu:
        os.environ.update(OPENBLAS_NUM_THREADS='1', HEKLA_NUM_THREADS='1')
    clock = time.process_time if options.cpu else time.perf_counter
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build'))
    sys.path.insert(0, str(build / 'python'))
    import jax
    import jax.numpy as jnp
    import numpy as np
    ours, peer = jax.devices(options.platform)[0], jax.devices('cpu')[0]
    names = [name for name in options.only.split(',') if name]
    ratios = {}
    print(f'load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; '
          f'OPENBLAS_CORETYPE={os.environ.get("OPENBLAS_CORETYPE", "")}')
    print(f'{"function":20} {"n":>5} {"dtype":10} {"hekla ms":>9} {"jaxlib ms":>9} {"ratio":>6}')
    for name, (function, wanted) in functions(jnp, jax).items():
        if names and name not in names:
            continue
        for dtype in options.dtypes.split(','):
            for n in map(int, options.sizes.split(',')):
                host = arguments(np, wanted, n, dtype)
                best = {}
                calls = {}
                for device in (ours, peer):
                    calls[device] = jax.jit(function), jax.device_put(host, device)
                    jax.block_until_ready(calls[device][0](*calls[device][1]))
                for _ in range(options.repeat):
                    for device, (call, args) in calls.items():
                        time.sleep(PAUSE)
                        for _ in range(2):
                            start = clock()
                            jax.block_until_ready(call(*args))
                            took = clock() - start
                            best[device] = min(best.get(device, took), took)
                ratio = best[peer] / best[ours]
                ratios[name, n, dtype] = ratio
                print(f'{name:20} {n:5} {dtype:10} {best[ours] * 1e3:9.2f} {best[peer] * 1e3:9.2f} '
                      f'{ratio:6.2f}', flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        worst = min(ratios, key=ratios.get)
        print(f'geometric mean {mean:.2f} of {len(ratios)}; worst {ratios[worst]:.2f}: {worst}')


if __name__ == '__main__':
    main()
