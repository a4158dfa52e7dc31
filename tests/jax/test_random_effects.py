# SPDX-License-Identifier: Apache-2.0
"""Random programs whose loops and branches call the host: each call takes place, as often as on
jaxlib's CPU and with the same values, whether or not a result needs it."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from callback_support import struct, with_rules  # noqa: F401

PROGRAMS = 4  # of one test; jaxlib's CPU takes half a second to compile one
SEEDS = range(4)
DEEPEST = 3  # loops and branches in each other
# jaxlib's CPU does not compile calls in branches before 0.10 ("Inconsistent conditional sharding").
BRANCHES = ['cond', 'switch'] if jax.__version_info__ >= (0, 10) else []


class Program:
    """Draws a program of a number and an array of i32 (which wrap), as statements in each other,
    each a function of (logs, number, array); `run` traces it on a device. What the host is told
    goes to logs[0] where calls have an order, else to the log of the call's place, sorted."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.calls = 0
        self.is_ordered = bool(self.random.integers(2))
        self.statements = self.block(0)

    def draw(self, *what):
        return what[self.random.integers(len(what))]

    def block(self, depth):
        kinds = ['number', 'array', 'tell', 'tell', 'ask_for_nothing', 'ask']
        if depth < DEEPEST:
            kinds += ['scan', 'scan', 'count', 'count_by_value', 'while', *BRANCHES]
        return [self.statement(self.draw(*kinds), depth) for _ in range(self.random.integers(1, 5))]

    def statement(self, kind, depth):
        inner = functools.partial(self.block, depth + 1)
        self.calls += 1
        place, constant = self.calls, int(self.random.integers(1, 7))
        if kind == 'number':
            return lambda logs, s, v: (s * 3 + constant + (v[constant % 5] if constant % 2 else 0), v)
        if kind == 'array':
            return lambda logs, s, v: (s, v * constant - (s if constant % 2 else 1))
        if kind in ('tell', 'ask', 'ask_for_nothing'):
            what = self.draw(lambda s, v: s, lambda s, v: v[constant % 5], lambda s, v: v)
            return functools.partial(self.call, kind, place, what)
        if kind == 'scan':
            return functools.partial(self.scan, inner(), int(self.random.integers(0, 6)),
                                     self.draw(1, 1, 2), self.draw(False, True))
        if kind in ('count', 'count_by_value'):
            return functools.partial(self.count, inner(), constant % 5, kind == 'count_by_value')
        if kind == 'while':
            return functools.partial(self.wait, inner(), constant)
        branches = [inner() for _ in range(2 if kind == 'cond' else 3)]
        return lambda logs, s, v: lax.switch(
            jnp.abs(s) % len(branches), [functools.partial(self.trace, b, logs) for b in branches], s, v)

    def call(self, kind, place, what, logs, s, v):
        def note(x):
            logs[0 if self.is_ordered else place].append((place, np.asarray(x).tolist()))
        def host(x):
            note(x)
            return np.asarray(x) * np.int32(2)
        x = what(s, v)
        if kind == 'tell':
            io_callback(note, None, x, ordered=self.is_ordered)
            return s, v
        answer = io_callback(host, struct(*x.shape, dtype=np.int32), x, ordered=self.is_ordered)
        return (s + answer.sum(), v) if kind == 'ask' else (s, v)

    def scan(self, body, trips, unroll, has_rows, logs, s, v):
        def step(carry, x):
            s, v = self.trace(body, logs, carry[0] + x, carry[1])
            return (s, v), (v if has_rows else s)
        (s, v), rows = lax.scan(step, (s, v), jnp.arange(trips, dtype=jnp.int32), unroll=unroll)
        return s + rows.sum(dtype=jnp.int32), v

    def count(self, body, trips, is_by_value, logs, s, v):
        last = jnp.abs(s) % (trips + 1) if is_by_value else trips
        return lax.fori_loop(0, last, lambda i, state: self.trace(body, logs, state[0] + i, state[1]),
                             (s, v))

    def wait(self, body, limit, logs, s, v):
        def step(state):
            return state[0] + 1, *self.trace(body, logs, *state[1:])
        return lax.while_loop(lambda state: (state[0] < 5) & (state[1] % 5 != limit % 5), step,
                              (jnp.int32(0), s, v))[1:]

    def trace(self, statements, logs, s, v):
        for statement in statements:
            s, v = statement(logs, s, v)
        return jnp.int32(s), v

    def run(self, where):
        logs = [[] for _ in range(self.calls + 1)]
        with jax.default_device(where):
            results = jax.jit(functools.partial(self.trace, self.statements, logs))(
                np.int32(4), np.arange(5, dtype=np.int32))
            jax.effects_barrier()
        return [np.asarray(result).tolist() for result in results], [
            log if self.is_ordered else sorted(log) for log in logs]


@pytest.mark.quick
@pytest.mark.parametrize('seed', SEEDS)
def test_calls_take_place(seed, cpu, device):
    told = 0
    for number in range(PROGRAMS):
        program = Program([seed, number])
        results, logs = program.run(cpu)
        assert program.run(device) == (results, logs), f'program {number} of seed {seed}'
        told += sum(map(len, logs))
    assert told > 0
