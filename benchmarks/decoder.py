#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model in plain JAX on Hekla's device beside a peer: prefill, decode, a step of training.

The decoder is of Llama's form (RMS norm, rotary positions, grouped heads, SwiGLU), weights and cache in
bf16 from a seed, batch 1: `prefill` takes a prompt, `decode` gives 64 tokens, each from the one before:
once as 64 launches with a donated cache, once as a loop within one launch. A token reads all weights and
the cache once; its rate in bytes stands beside what the same device needs to add 1 to an array of 512 MB
of bf16. `train` is a step of AdamW on a GPT in bf16 with parameters in f32. All sides run interleaved in
one process; figures are medians with quartiles, ratios peer / Hekla (above 1: Hekla is faster). The tokens
and the losses of both sides are compared.

  .venv/jax-0.10.2/bin/python benchmarks/decoder.py --size tiny
  benchmarks/decoder.py --platform vulkan --peer cuda --json out.json      (1.0 and 0.35 billion parameters)
  benchmarks/decoder.py --platform vulkan --peer cuda --parts decode --layers 2

Exit status: 0, or 1 when the sides disagree.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import pathlib
import statistics
import sys
import time

import numpy as np
from programs import BUILD, platforms


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    words: int
    prompt: int
    cache: int
    # of the model that is trained: layers, width, heads, batch, length, words
    trained: tuple

    @property
    def head(self):
        return self.width // self.heads


SIZES = {
    "1b": Size(16, 2048, 32, 8, 8192, 32000, 2048, 4096, (24, 1024, 16, 4, 1024, 50304)),
    "tiny": Size(2, 128, 4, 2, 256, 512, 64, 256, (2, 128, 4, 2, 64, 512)),
}
TOKENS = 64


def weights_of(size, key):
    """Shapes and scales of the decoder's weights, filled from the seed."""
    import jax
    import jax.numpy as jnp
    d, kv = size.width, size.key_heads * size.head
    layer = {"q": (d, d), "k": (d, kv), "v": (d, kv), "o": (d, d), "gate": (d, size.hidden),
             "up": (d, size.hidden), "down": (size.hidden, d)}
    keys = iter(jax.random.split(key, 1 + size.layers * len(layer)))

    def draw(shape):
        return (jax.random.normal(next(keys), shape, jnp.float32)
                / math.sqrt(shape[0])).astype(jnp.bfloat16)
    return {"words": draw((size.words, d)) * jnp.bfloat16(10),
            "layers": [{**{name: draw(shape) for name, shape in layer.items()},
                        "norm1": jnp.ones(d, jnp.bfloat16), "norm2": jnp.ones(d, jnp.bfloat16)}
                       for _ in range(size.layers)],
            "norm": jnp.ones(d, jnp.bfloat16)}


def rms_norm(x, scale):
    import jax
    import jax.numpy as jnp
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * scale


def rotate(x, positions):
    """Rotary positions; x: [length, heads, head]."""
    import jax.numpy as jnp
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


def advance(size, weights, cache, tokens, first):
    """Logits of the last of `tokens`, which stand at positions first ...; the cache with them.

    cache: per layer keys and values, each [size.cache, key_heads, head].
    """
    import jax
    import jax.numpy as jnp
    from jax import lax
    positions = first + jnp.arange(tokens.shape[0])
    seen = jnp.arange(size.cache)[None] <= positions[:, None]  # [tokens, cache]
    x = weights["words"][tokens] * jnp.bfloat16(0.1)
    kept = []
    for layer, (keys, values) in zip(weights["layers"], cache):
        y = rms_norm(x, layer["norm1"])
        q, k, v = ((y @ layer[name]).reshape(tokens.shape[0], -1, size.head) for name in "qkv")
        q, k = rotate(q, positions), rotate(k, positions)
        keys = lax.dynamic_update_slice(keys, k, (first, 0, 0))
        values = lax.dynamic_update_slice(values, v, (first, 0, 0))
        kept.append((keys, values))
        y = jax.nn.dot_product_attention(q[None], keys[None], values[None], mask=seen[None, None])
        x = x + y.reshape(tokens.shape[0], -1) @ layer["o"]
        y = rms_norm(x, layer["norm2"])
        x = x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
    last = rms_norm(x[-1], weights["norm"])
    return (weights["words"] @ last).astype(jnp.float32), kept


def decode_loop(size, weights, cache, token, first):
    """TOKENS tokens, each the most likely one after those before."""
    import jax.numpy as jnp
    from jax import lax

    def step(i, state):
        cache, tokens = state
        logits, cache = advance(size, weights, cache, lax.dynamic_slice(tokens, (i,), (1,)), first + i)
        return cache, tokens.at[i + 1].set(jnp.argmax(logits).astype(jnp.int32))
    tokens = jnp.zeros(TOKENS + 1, jnp.int32).at[0].set(token[0])
    cache, tokens = lax.fori_loop(0, TOKENS, step, (cache, tokens))
    return tokens, cache


def gpt_parameters(trained, key):
    import jax
    import jax.numpy as jnp
    layers, d, _, _, length, words = trained
    shapes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    keys = iter(jax.random.split(key, 2 + layers * len(shapes)))

    def draw(shape):
        return jax.random.normal(next(keys), shape, jnp.float32) * 0.02
    return {"words": draw((words, d)), "places": draw((length, d)),
            "layers": [{**{name: draw(shape) for name, shape in shapes.items()},
                        **{"b_" + name: jnp.zeros(shape[1]) for name, shape in shapes.items()},
                        "norm1": jnp.ones(d), "norm2": jnp.ones(d)} for _ in range(layers)],
            "norm": jnp.ones(d)}


def gpt_loss(trained, parameters, tokens):
    import jax
    import jax.numpy as jnp
    _, d, heads, batch, length, _ = trained
    p = jax.tree.map(lambda w: w.astype(jnp.bfloat16), parameters)

    def norm(x, scale):
        wide = x.astype(jnp.float32)
        wide -= wide.mean(-1, keepdims=True)
        wide *= jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
        return wide.astype(jnp.bfloat16) * scale
    x = p["words"][tokens[:, :-1]] + p["places"]
    for layer in p["layers"]:
        qkv = norm(x, layer["norm1"]) @ layer["qkv"] + layer["b_qkv"]
        q, k, v = (qkv[..., i * d:(i + 1) * d].reshape(batch, length, heads, -1) for i in range(3))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, d)
        x = x + y @ layer["out"] + layer["b_out"]
        y = jax.nn.gelu(norm(x, layer["norm2"]) @ layer["up"] + layer["b_up"])
        x = x + y @ layer["down"] + layer["b_down"]
    logits = (norm(x, p["norm"]) @ p["words"].T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def adamw(trained, parameters, first, second, count, tokens):
    import jax
    import jax.numpy as jnp
    loss, gradients = jax.value_and_grad(functools.partial(gpt_loss, trained))(parameters, tokens)
    count = count + 1

    def update(w, m, v, g):
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        m_hat, v_hat = m / (1 - 0.9 ** count), v / (1 - 0.95 ** count)
        return w - 3e-4 * (m_hat / (jnp.sqrt(v_hat) + 1e-8) + 0.1 * w), m, v
    triples = jax.tree.map(update, parameters, first, second, gradients)
    parts = jax.tree.transpose(jax.tree.structure(parameters), jax.tree.structure((0, 0, 0)), triples)
    return loss, *parts, count


class Side:
    """Both models on one platform of JAX."""

    def __init__(self, platform, size, parts):
        import jax
        import jax.numpy as jnp
        self.device = jax.devices(platform)[0]
        self.size, self.programs, self.times, self.compile_s = size, {}, {}, {}
        put = functools.partial(jax.device_put, device=self.device)
        key = put(jax.random.key(0))
        rng = np.random.default_rng(0)
        if parts & {"prefill", "decode"}:
            self.weights = jax.jit(functools.partial(weights_of, size))(key)
            shape = (size.cache, size.key_heads, size.head)
            self.cache = jax.jit(lambda key: [tuple(
                jnp.zeros(shape, jnp.bfloat16) for _ in range(2)) for _ in range(size.layers)])(key)
            self.prompt = put(rng.integers(0, size.words, size.prompt, np.int32))
        if "train" in parts:
            batch, length, words = size.trained[3:]
            self.tokens = put(rng.integers(0, words, (batch, length + 1), np.int32))
            parameters = jax.jit(functools.partial(gpt_parameters, size.trained))(key)
            zeros = jax.jit(lambda p: jax.tree.map(jnp.zeros_like, p))
            self.state = [parameters, zeros(parameters), zeros(parameters), put(np.float32(0))]
            self.losses = []
        if "decode" in parts:
            self.plus_one = jax.jit(lambda x: x + jnp.bfloat16(1))
            count = size.width << (17 if size.width > 1024 else 9)
            self.array = jax.jit(lambda key: jnp.zeros(count, jnp.bfloat16))(key)

    def compiled(self, name, function, *arguments, **options):
        """The function for these arguments; the same program serves all calls."""
        import jax
        if name not in self.programs:
            start = time.perf_counter()
            self.programs[name] = jax.jit(function, **options).lower(*arguments).compile()
            self.compile_s[name] = time.perf_counter() - start
        return functools.partial(self.programs[name], *arguments)

    def timed(self, name, function):
        import jax
        start = time.perf_counter()
        result = jax.block_until_ready(function())
        self.times.setdefault(name, []).append(time.perf_counter() - start)
        return result

    def advance(self, name, tokens, first):
        """One launch; the cache stays here. -> logits, the most likely word"""
        def program(weights, cache, tokens, first):
            import jax.numpy as jnp
            logits, cache = advance(self.size, weights, cache, tokens, first)
            return logits, jnp.argmax(logits).astype(jnp.int32)[None], cache
        logits, word, self.cache = self.compiled(
            name, program, self.weights, self.cache, tokens, np.int32(first), donate_argnums=1)()
        return logits, word

    def prefill(self):
        self.logits, self.word = self.timed(
            "prefill", lambda: self.advance("prefill", self.prompt, 0))

    def decode(self):
        first = self.size.prompt

        def launches():
            words = [self.word]
            for i in range(TOKENS):
                words.append(self.advance("decode, 64 launches", words[-1], first + i)[1])
            return words
        self.generated = np.concatenate(self.timed("decode, 64 launches", launches))
        loop = self.compiled("decode, one launch", functools.partial(decode_loop, self.size),
                             self.weights, self.cache, self.word, np.int32(first), donate_argnums=1)
        tokens, self.cache = self.timed("decode, one launch", loop)
        self.looped = np.asarray(tokens)
        self.timed("x + 1", self.compiled("x + 1", lambda x: x + x.dtype.type(1), self.array))

    def train(self):
        step = self.compiled("train", functools.partial(adamw, self.size.trained), *self.state,
                             self.tokens, donate_argnums=(0, 1, 2, 3))
        loss, *self.state = self.timed("train", step)
        self.losses.append(float(loss))


def token_bytes(size):
    """What a token in the middle of the 64 must read: weights once, the cache's whole length."""
    d, kv = size.width, size.key_heads * size.head
    layer = 2 * d * d + 2 * d * kv + 3 * d * size.hidden
    return 2 * (size.words * d + size.layers * (layer + 2 * kv * size.cache))


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def quartiles(times):
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return {"median_s": middle, "low_s": low, "high_s": high, "best_s": min(times)}


def report(size, sides, parts):
    """-> (what --json gets, what the sides disagree about)."""
    ours, theirs = sides
    rows, faults = [], []
    for name in ours.times:
        for side in sides:
            side.times[name] = side.times[name][1:]
        row = {"name": name, "hekla": quartiles(ours.times[name]), "peer": quartiles(theirs.times[name]),
               "compile_s": [side.compile_s[name] for side in sides]}
        row["ratio"] = row["peer"]["median_s"] / row["hekla"]["median_s"]
        rows.append(row)
        print(f"{name:20} " + ", ".join(
            f"{1e3 * x['median_s']:.3f} ms ({1e3 * x['low_s']:.3f} - {1e3 * x['high_s']:.3f})"
            for x in (row["hekla"], row["peer"])) + f"  ratio {row['ratio']:.2f}; compilation, s: "
            + ", ".join(f"{x:.1f}" for x in row["compile_s"]))
    result = {"rows": rows}
    if "decode" in parts:
        copy = [4 * side.array.size / min(side.times["x + 1"]) for side in sides]
        for name in ("decode, 64 launches", "decode, one launch"):
            rates = [TOKENS * token_bytes(size) / statistics.median(side.times[name]) for side in sides]
            result[name] = {"tokens_per_s": [r / token_bytes(size) for r in rates], "bytes_per_s": rates,
                            "copy_bytes_per_s": copy, "share": [r / c for r, c in zip(rates, copy)]}
            print(f"{name}: " + "; ".join(
                f"{side.device.platform} {r / token_bytes(size):.0f} tokens/s, {r / 1e9:.0f} GB/s, "
                f"{r / c:.2f} of its x + 1" for side, r, c in zip(sides, rates, copy)))
        # Sums of bf16 in two orders part sooner or later where two words are as likely.
        result["same_tokens"] = {
            "both sides": common(ours.generated, theirs.generated),
            **{f"{side.device.platform}, launches and loop": common(side.generated, side.looped)
               for side in sides}}
        print(f"tokens in common from the first on, of {TOKENS + 1}: "
              + "; ".join(f"{name} {n}" for name, n in result["same_tokens"].items()))
    if parts & {"prefill", "decode"}:
        a, b = (np.asarray(side.logits, np.float64) for side in sides)
        result["logits_error"] = float(np.linalg.norm(a - b) / np.linalg.norm(b))
        print(f"logits after the prompt: relative difference {result['logits_error']:.4f}")
        if not result["logits_error"] < 0.1:
            faults.append("the logits differ")
    if "train" in parts:
        a, b = (np.array(side.losses) for side in sides)
        result["losses"] = [list(a), list(b)]
        print("losses:", " ".join(f"{x:.4f}/{y:.4f}" for x, y in zip(a, b)))
        if not np.allclose(a, b, rtol=0.02):
            faults.append("the losses differ")
    return result, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="tbb", help="tbb or vulkan")
    parser.add_argument("--peer", default="cpu", help="platform of JAX to compare with")
    parser.add_argument("--size", choices=sorted(SIZES), default="1b")
    parser.add_argument("--layers", type=int, help="of the decoder, in place of the size's")
    parser.add_argument("--parts", default="prefill,decode,train")
    parser.add_argument("--rounds", type=int, default=7, help="timed ones, after one that is not")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    parts = set(arguments.parts.split(","))
    if parts - {"prefill", "decode", "train"}:
        parser.error(f"no such part: {', '.join(sorted(parts - {'prefill', 'decode', 'train'}))}")
    if "decode" in parts:
        parts.add("prefill")  # fills the cache
    if arguments.rounds < 2:
        parser.error("--rounds: at least 2, for quartiles")
    os.environ["JAX_PLATFORMS"] = platforms(arguments.platform, arguments.peer)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.path.insert(0, str(BUILD / "python"))
    size = SIZES[arguments.size]
    if arguments.layers:
        size = dataclasses.replace(size, layers=arguments.layers)
    sides = [Side(platform, size, parts) for platform in (arguments.platform, arguments.peer)]
    for part in ("prefill", "decode", "train"):
        if part in parts:
            for _ in range(arguments.rounds + 1):
                for side in sides:
                    getattr(side, part)()
            print(f"{part}: done", file=sys.stderr, flush=True)
    result, faults = report(size, sides, parts)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    for fault in faults:
        print("WRONG:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
