#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single kernels on Hekla's devices beside their peer and their limit.

Matrix products, convolutions, products with what follows them, attention: GF/s, beside jaxlib's CPU
(--peer: another platform of JAX) and numpy's BLAS. Elementwise, reductions, scans, transposes, gathers:
GB/s of what must be moved, as a share of plain copies of as many bytes: by the CPU, on Vulkan by the
device (x + 1), or where the peer is no CPU by the peer. Sorts: million elements per second, beside jaxlib
and numpy. All sides run interleaved in one process; figures are of the best launch, the spread is the
upper quartile over the median. On a busy machine --cpu-time says more, where the device is software.

  .venv/jax-0.10.2/bin/python benchmarks/kernels.py
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --platform vulkan --only gemm --json out.json
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --platform vulkan --cpu-time
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --f64
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --complex
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --platform vulkan --peer cuda --large
  .venv/jax-0.10.2/bin/python benchmarks/kernels.py --only epilogue --beside hekla_row_groups=false
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

from programs import BUILD, Copy, platforms

ROOT = pathlib.Path(__file__).resolve().parent.parent


def large_cases():
    """Like cases(), of sizes that fill a GPU."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)
    n = 4096
    square = normal(n, n)
    half = square.astype(jnp.bfloat16)
    yield "gemm", "f32 4096 x 4096 x 4096", lambda a, b: a @ b, (square, square), 2 * n ** 3, \
        "GF/s", None
    yield "gemm", "bf16 4096 x 4096 x 4096", lambda a, b: a @ b, (half, half), 2 * n ** 3, \
        "GF/s", None
    yield "gemm", "f32 256 batches of 256", lambda a, b: a @ b, \
        (square.reshape(256, 256, 256), square.reshape(256, 256, 256)), 2 * 256 ** 4, "GF/s", None

    heads, width = 16, 128
    for dtype in (jnp.float32, jnp.bfloat16):
        operands = tuple(normal(1, n, heads, width).astype(dtype) for _ in range(3))
        for causal in (False, True):
            yield ("attention", f"{heads} heads of {n} x {width}, {jnp.dtype(dtype).name}"
                   + ", causal" * causal,
                   lambda q, k, v, causal=causal: jax.nn.dot_product_attention(
                       q, k, v, is_causal=causal),
                   operands, 4 * n ** 2 * heads * width, "GF/s", None)

            # Two products forwards, four more backwards; half of them are masked where it is causal.
            def gradient(q, k, v, causal=causal):
                def loss(q, k, v):
                    x = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
                    return (x.astype(jnp.float32) ** 2).sum()
                return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)
            yield ("attention", f"gradient, {heads} heads of {n} x {width}, {jnp.dtype(dtype).name}"
                   + ", causal" * causal, gradient, operands, 12 * n ** 2 * heads * width, "GF/s",
                   None)
        # One new token: all keys and values are read once.
        row = normal(1, 1, heads, width).astype(dtype)
        for batch in (1, 16):
            yield ("attention", f"decode, {batch} x {heads} heads of {n} x {width}, "
                   + jnp.dtype(dtype).name, jax.nn.dot_product_attention,
                   tuple(jnp.repeat(x, batch, 0) for x in (row, *operands[1:])),
                   2 * batch * n * heads * width * jnp.dtype(dtype).itemsize, "GB/s", None)

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    yield "convolution", "32x56x56x64 by 3x3x64", convolve, \
        (normal(32, 56, 56, 64), normal(3, 3, 64, 64)), 2 * 32 * 56 * 56 * 64 * 64 * 9, "GF/s", None
    m = 8192
    big = normal(m, m)
    flat = big.reshape(-1)
    size = flat.size
    yield "gemm", "f32 8192 x 8192 times vector", lambda a, b: a @ b, (big, big[0]), 2 * m * m, \
        "GF/s", None
    halves = big.astype(jnp.bfloat16)
    yield "gemm", "bf16 8192 x 8192 times vector", lambda a, b: a @ b, (halves, halves[0]), \
        2 * m * m, "GF/s", None
    yield "gemm", "f32 vector times 8192 x 8192", lambda a, b: a @ b, (big[0], big), 2 * m * m, \
        "GF/s", None
    yield "gemm", "f32 8192 x 8192 times 4 columns", lambda a, b: a @ b, \
        (big, np.ascontiguousarray(big[:, :4])), 8 * m * m, "GF/s", None
    yield "elementwise", "x * y + x, 64M", lambda a, b: a * b + a, (flat, flat[::-1].copy()), \
        12 * size, "GB/s", None
    yield "elementwise", "tanh, 64M", jnp.tanh, (flat,), 8 * size, "GB/s", None
    yield "reduction", "sum of 64M", jnp.sum, (flat,), 4 * size, "GB/s", None
    yield "reduction", "rows of 8192 x 8192", lambda a: a.sum(1), (big,), 4 * size, "GB/s", None
    yield "reduction", "columns of 8192 x 8192", lambda a: a.sum(0), (big,), 4 * size, "GB/s", None
    yield "reduction", "argmax of rows", lambda a: a.argmax(1), (big,), 4 * size, "GB/s", None
    yield "reduction", "softmax of rows", lambda a: jax.nn.softmax(a, axis=1), (big,), 8 * size, \
        "GB/s", None
    yield "movement", "transpose 8192 x 8192", lambda a: a.T, (big,), 8 * size, "GB/s", None
    yield "movement", "bf16 transpose 8192 x 8192", lambda a: a.T, (halves,), 4 * size, "GB/s", None
    yield "movement", "256 x 512 x 512 to 2, 0, 1", lambda a: a.transpose(2, 0, 1), \
        (big.reshape(256, 512, 512),), 8 * size, "GB/s", None
    yield "movement", "64 x 1024 x 16 x 64 to 0, 2, 1, 3", lambda a: a.transpose(0, 2, 1, 3), \
        (big.reshape(64, 1024, 16, 64),), 8 * size, "GB/s", None
    yield "movement", "1024 x 128 x 128 x 4 to 0, 3, 1, 2", lambda a: a.transpose(0, 3, 1, 2), \
        (big.reshape(1024, 128, 128, 4),), 8 * size, "GB/s", None
    places = rng.integers(0, 1 << 20, 1 << 20, np.int32)
    yield "movement", "gather 1M rows of 64", lambda t, i: t[i], (big.reshape(-1, 64), places), \
        8 * size, "GB/s", None
    yield "scan", "cumsum of 8192 x 8192", lambda a: jnp.cumsum(a, 1), (big,), 8 * size, "GB/s", \
        None
    yield "scan", "cumsum of 16M", jnp.cumsum, (flat[:1 << 24],), 8 << 24, "GB/s", None
    yield "sort", "16M f32", jnp.sort, (flat[:1 << 24],), 1 << 24, "M/s", None


def f64_cases():
    """Like cases(), products and convolutions of f64, the latter with both gradients."""
    import jax
    import numpy as np
    from jax import lax
    rng = np.random.default_rng(1)
    for m, k, n in ((64, 64, 64), (512, 512, 512), (1024, 1024, 1024), (16, 2048, 2048), (2048, 64, 2048),
                    (2048, 2048, 1)):
        for is_transposed in (False, True):
            yield ("gemm", f"f64 {m} x {k} x {n}" + " transposed" * is_transposed,
                   lambda a, b, is_transposed=is_transposed: a @ (b.T if is_transposed else b),
                   (rng.standard_normal((m, k)),
                    rng.standard_normal((n, k) if is_transposed else (k, n))), 2 * m * k * n, "GF/s",
                   None)
    for layout, kernel_layout in (("NHWC", "HWIO"), ("NCHW", "OIHW")):
        for images, size, features, to, taps, stride in (
                (4, 56, 64, 64, 3, 1), (4, 56, 64, 64, 3, 2), (4, 56, 64, 128, 1, 2),
                (2, 224, 3, 64, 7, 2), (4, 14, 256, 256, 3, 1), (4, 14, 256, 256, 3, 2)):
            last = layout == "NHWC"
            x = rng.standard_normal((images, size, size, features) if last else
                                    (images, features, size, size))
            w = rng.standard_normal((taps, taps, features, to) if last else (to, features, taps, taps))

            def convolve(x, w, stride=stride, numbers=(layout, kernel_layout, layout)):
                return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)
            out = jax.eval_shape(convolve, x, w)
            gradient = rng.standard_normal(out.shape)

            def by_input(x, w, g, convolve=convolve):
                return jax.vjp(lambda x: convolve(x, w), x)[1](g)

            def by_kernel(x, w, g, convolve=convolve):
                return jax.vjp(lambda w: convolve(x, w), w)[1](g)
            name = f"{layout} {images}x{size}x{size}x{features} by {taps}x{taps}x{to} / {stride}"
            work = 2 * out.size * features * taps ** 2
            yield "convolution", name, convolve, (x, w), work, "GF/s", None
            for which, function in (("input", by_input), ("kernel", by_kernel)):
                yield ("convolution", f"{name}, by {which}", function, (x, w, gradient), work, "GF/s",
                       None)


def complex_cases():
    """Like cases(), products and convolutions of complex numbers; a real multiply-add counts two."""
    import numpy as np
    from jax import lax
    rng = np.random.default_rng(1)
    forms = {"": lambda a, b: a @ b, " b.T": lambda a, b: a @ b.T, " a.H": lambda a, b: a.conj().T @ b}
    for dtype in (np.complex64, np.complex128):
        def normal(*shape, dtype=dtype):
            return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
        kind = "c64" if dtype == np.complex64 else "c128"
        for m, k, n in ((64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (4, 2048, 2048),
                        (16, 2048, 2048), (2048, 64, 2048), (2048, 2048, 16), (2048, 2048, 4),
                        (2048, 2048, 1), (1, 2048, 2048)):
            for form, function in forms.items():
                yield ("gemm", f"{kind} {m} x {k} x {n}{form}", function,
                       (normal(k, m) if form == " a.H" else normal(m, k),
                        normal(n, k) if form == " b.T" else normal(k, n)), 8 * m * k * n, "GF/s", None)
        for batches, n in ((4096, 4), (64, 32)):
            yield ("gemm", f"{kind} {batches} batches of {n}", forms[""],
                   (normal(batches, n, n), normal(batches, n, n)), 8 * batches * n ** 3, "GF/s", None)
        for layout, kernel_layout in (("NHWC", "HWIO"), ("NCHW", "OIHW")):
            for images, size, features, to, taps, stride in ((2, 28, 32, 32, 3, 1), (4, 56, 16, 32, 3, 2),
                                                             (4, 32, 3, 16, 5, 1)):
                last = layout == "NHWC"
                x = normal(images, size, size, features) if last else normal(images, features, size, size)
                w = normal(taps, taps, features, to) if last else normal(to, features, taps, taps)

                def convolve(x, w, stride=stride, numbers=(layout, kernel_layout, layout)):
                    return lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                                    dimension_numbers=numbers)
                yield ("convolution", f"{kind} {layout} {images}x{size}x{size}x{features} by "
                       f"{taps}x{taps}x{to} / {stride}", convolve, (x, w),
                       8 * images * (size // stride) ** 2 * to * features * taps ** 2, "GF/s", None)


def cases():
    """(group, name, function, arguments, work, unit, numpy function or None)."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)
    for n in (64, 256, 512, 1024):
        yield ("gemm", f"f32 {n} x {n} x {n}", lambda a, b: a @ b, (normal(n, n), normal(n, n)),
               2 * n ** 3, "GF/s", np.matmul)
    yield ("gemm", "f32 128 x 4096 x 64", lambda a, b: a @ b, (normal(128, 4096), normal(4096, 64)),
           2 * 128 * 4096 * 64, "GF/s", np.matmul)
    yield ("gemm", "f32 2048 x 2048 times vector", lambda a, b: a @ b,
           (normal(2048, 2048), normal(2048)), 2 * 2048 ** 2, "GF/s", np.matmul)
    yield ("gemm", "f32 16 batches of 128", lambda a, b: a @ b,
           (normal(16, 128, 128), normal(16, 128, 128)), 2 * 16 * 128 ** 3, "GF/s", np.matmul)

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    for b, s, c, k in ((1, 56, 64, 3), (8, 28, 32, 3), (1, 112, 16, 1)):
        yield ("convolution", f"{b}x{s}x{s}x{c} by {k}x{k}x{c}", convolve,
               (normal(b, s, s, c), normal(k, k, c, c)), 2 * b * s * s * c * c * k * k, "GF/s",
               None)
    a, b, row, residual = normal(1024, 1024), normal(1024, 1024), normal(1024), normal(1024, 1024)
    for name, after, more in (
            ("bias", lambda p, c: p + c, row), ("bias, relu", lambda p, c: jnp.maximum(p + c, 0), row),
            ("bias, gelu", lambda p, c: jax.nn.gelu(p + c), row),
            ("residual", lambda p, c: p + c, residual)):
        yield ("epilogue", f"f32 1024 x 1024 x 1024 + {name}",
               lambda a, b, c, after=after: after(a @ b, c), (a, b, more), 2 << 30, "GF/s", None)
    length, heads, width = 2048, 8, 64
    flops = 4 * length ** 2 * heads * width
    by_head = tuple(normal(1, heads, length, width) for _ in range(3))
    by_token = tuple(normal(1, length, heads, width) for _ in range(3))

    def attention(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / width ** 0.5
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    def causal_attention(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / width ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    yield "attention", "8 heads of 2048 x 64", attention, by_head, flops, "GF/s", None
    yield "attention", "causal, by tokens", causal_attention, by_token, flops, "GF/s", None
    def library_attention(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)
    yield ("attention", "causal, dot_product_attention", library_attention, by_token, flops, "GF/s",
           None)

    row = normal(1, heads, 1, width)
    yield ("attention", "decode, 8 heads of 2048 x 64", attention, (row, *by_head[1:]),
           8 * length * heads * width, "GB/s", None)

    # Two products forwards, four more backwards; recomputed, one more.
    def gradient(function):
        return jax.grad(lambda q, k, v: (function(q, k, v) ** 2).sum(), argnums=(0, 1, 2))
    yield "attention", "gradient", gradient(attention), by_head, 3 * flops, "GF/s", None
    yield ("attention", "gradient, causal, by tokens", gradient(causal_attention), by_token,
           3 * flops, "GF/s", None)
    yield ("attention", "gradient, dot_product_attention", gradient(library_attention), by_token,
           3 * flops, "GF/s", None)
    yield ("attention", "gradient, recomputed", gradient(jax.checkpoint(attention)), by_head,
           3.5 * flops, "GF/s", None)
    n = 1 << 22
    x, y = normal(n), normal(n)
    yield "elementwise", "x * y + x, 4M", lambda a, b: a * b + a, (x, y), 12 * n, "GB/s", None
    yield "elementwise", "tanh, 4M", jnp.tanh, (x,), 8 * n, "GB/s", None
    yield "elementwise", "exp, 4M", jnp.exp, (x,), 8 * n, "GB/s", None
    yield "reduction", "sum of 4M", jnp.sum, (x,), 4 * n, "GB/s", None
    square = x.reshape(2048, 2048)
    yield "reduction", "rows of 2048 x 2048", lambda a: a.sum(1), (square,), 4 * n, "GB/s", None
    yield "reduction", "columns of 2048 x 2048", lambda a: a.sum(0), (square,), 4 * n, "GB/s", None
    yield "reduction", "argmax of rows", lambda a: a.argmax(1), (square,), 4 * n, "GB/s", None
    yield "movement", "transpose 2048 x 2048", lambda a: a.T, (square,), 8 * n, "GB/s", None
    places = rng.integers(0, 1 << 14, 1 << 14, np.int32)
    table = normal(1 << 14, 64)
    yield ("movement", "gather 16K rows of 64", lambda t, i: t[i], (table, places),
           2 * table.nbytes, "GB/s", None)
    yield "scan", "cumsum of 64 x 16384", lambda a: jnp.cumsum(a, 1), (normal(64, 16384),), \
        8 << 20, "GB/s", None
    yield "scan", "cumsum of 1M", jnp.cumsum, (x[:1 << 20],), 8 << 20, "GB/s", None
    keys = rng.integers(-1 << 30, 1 << 30, 1 << 20, np.int32)
    yield "sort", "1M f32", jnp.sort, (x[:1 << 20],), 1 << 20, "M/s", np.sort
    yield "sort", "1M i32, places", jnp.argsort, (keys,), 1 << 20, "M/s", np.argsort
    yield "sort", "1024 rows of 1024", lambda a: jnp.sort(a, 1), (square[:1024, :1024],), \
        1 << 20, "M/s", lambda a: np.sort(a, 1)


def timed(run, clock):
    start = clock()
    run()
    return clock() - start


def copy_on(platform, peer, work):
    """A copy that moves `work` bytes, half of them read: what limits a device of this platform."""
    import jax
    import jax.numpy as jnp
    if platform != "vulkan" and peer == "cpu":
        return Copy(work).run
    device = jax.devices(platform if peer == "cpu" else peer)[0]
    x = jax.device_put(jnp.zeros(max(work // 8, 1), jnp.float32), device)
    jitted = jax.jit(lambda a: a + 1)
    jitted(x).block_until_ready()
    return lambda: jitted(x).block_until_ready()


def measure(platform, peer, function, arguments, numpy_function, work, unit, limit_s, clock, other):
    """`other`: compiler options of a third side, Hekla's once more; empty: there is none."""
    import jax
    sides = {}
    for name in dict.fromkeys((platform, peer)):
        device = jax.devices(name)[0]
        placed = jax.device_put(arguments, device)
        jitted = jax.jit(function)
        jax.block_until_ready(jitted(*placed))
        sides["hekla" if name == platform else "peer"] = \
            lambda jitted=jitted, placed=placed: jax.block_until_ready(jitted(*placed))
    if other:
        placed = jax.device_put(arguments, jax.devices(platform)[0])
        with jax.default_device(jax.devices(platform)[0]):
            compiled = jax.jit(function).lower(*placed).compile(compiler_options=other)
        sides["other"] = lambda: jax.block_until_ready(compiled(*placed))
    if numpy_function is not None:
        sides["numpy"] = lambda: numpy_function(*arguments)
    if unit == "GB/s":
        sides["copy"] = copy_on(platform, peer, work)
    times = {name: [] for name in sides}
    start = time.perf_counter()
    iteration = 0
    while iteration < 5 or (time.perf_counter() - start < limit_s and iteration < 500):
        for name, run in sides.items():
            times[name].append(timed(run, clock))
        iteration += 1
    scale = 1e6 if unit == "M/s" else 1e9
    return {name: {"best_s": min(t), "median_s": statistics.median(t),
                  "upper_quartile_s": statistics.quantiles(t, n=4)[2],
                  "rate": work / min(t) / scale} for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="tbb", help="tbb, vulkan or reference")
    parser.add_argument("--peer", default="cpu", help="platform of JAX to compare with: cpu, cuda, "
                        "rocm or another")
    parser.add_argument("--only", help="comma-separated groups: gemm, convolution, epilogue, "
                        "attention, elementwise, reduction, movement, scan, sort")
    parser.add_argument("--large", action="store_true", help="sizes that fill a GPU")
    parser.add_argument("--f64", action="store_true", help="products and convolutions of f64 alone")
    parser.add_argument("--complex", action="store_true",
                        help="products and convolutions of complex numbers alone")
    parser.add_argument("--cpu-time", action="store_true",
                        help="of all threads of the process, in place of the time that passes")
    parser.add_argument("--beside", metavar="NAME=VALUE", help="a compiler option of a third side, "
                        "Hekla's with it: hekla_row_groups=false")
    parser.add_argument("--seconds", type=float, default=0.7, help="per kernel")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = platforms(arguments.platform, arguments.peer)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if arguments.f64 or arguments.complex:
        os.environ["JAX_ENABLE_X64"] = "1"
    sys.path[:0] = [str(BUILD / "python"), str(pathlib.Path(__file__).resolve().parent)]
    wanted = arguments.only.split(",") if arguments.only else None
    other = dict([arguments.beside.split("=", 1)]) if arguments.beside else {}
    rows = []
    print(f"{'kernel':42} {'Hekla':>9} {'spread':>7} {'peer':>9} {'numpy':>9} {'copy':>9} "
          f"{'of peer':>9} {'of copy':>8}" + (f" {'of ' + arguments.beside:>20}" if other else ""))
    chosen = (complex_cases() if arguments.complex else f64_cases() if arguments.f64 else
              large_cases() if arguments.large else cases())
    for group, name, function, inputs, work, unit, numpy_function in chosen:
        if wanted and group not in wanted:
            continue
        row = measure(arguments.platform, arguments.peer, function, inputs, numpy_function, work,
                      unit, arguments.seconds,
                      time.process_time if arguments.cpu_time else time.perf_counter, other)
        rows.append({"group": group, "kernel": name, "unit": unit, **row})

        def rate(side):
            return f"{row[side]['rate']:.2f}" if side in row else ""
        ours = row["hekla"]
        spread = ours["upper_quartile_s"] / ours["median_s"]
        against = f"{ours['rate'] / row['peer']['rate']:.2f}"
        share = f"{ours['rate'] / row['copy']['rate'] * 100:.0f} %" if "copy" in row else ""
        print(f"{group + ' ' + name:36} {unit:5} {rate('hekla'):>9} {spread:7.2f} "
              f"{rate('peer'):>9} {rate('numpy'):>9} {rate('copy'):>9} {against:>9} "
              f"{share:>8}" + (f" {ours['rate'] / row['other']['rate']:>20.3f}" if other else ""),
              flush=True)
    if arguments.json:
        document = {"platform": arguments.platform, "peer": arguments.peer, "rows": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
