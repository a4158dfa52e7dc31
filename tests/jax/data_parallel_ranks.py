# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_data_parallel.py do: SCENARIO..., in a process each, with JAX on its CPU.

A rank prints what it has by scenario as one line of JSON; hashes of bytes where bits are compared. What one
process would have rank 0 alone computes.
"""
import hashlib
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from hekla import data_parallel, process_group

BATCH, STEPS = 24, 5


def initial():
    random = np.random.default_rng(0)

    def array(*shape):
        return jnp.asarray(random.standard_normal(shape).astype(np.float32) * 0.3)
    return {'first': {'w': array(5, 7), 'b': array(7)}, 'last': [array(7, 3), array(3)], 'none': jnp.zeros((0, 2))}


def batch(step, rank, size):
    random = np.random.default_rng(step + 100)
    x, y = (random.standard_normal((BATCH, n)).astype(np.float32) for n in (5, 3))
    each = BATCH // size
    return x[rank * each:][:each], y[rank * each:][:each]


def loss_of(p, x, y):
    hidden = jnp.tanh(x @ p['first']['w'] + p['first']['b'])
    return jnp.mean((hidden @ p['last'][0] + p['last'][1] - y) ** 2) + jnp.sum(p['none'])


value_and_grad = jax.jit(jax.value_and_grad(loss_of))


def descend(p, g):
    return jax.tree.map(lambda a, b: jnp.asarray(np.asarray(a) - np.float32(0.1) * np.asarray(b)), p, g)


def digest(tree):
    bits = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        bits.update(np.asarray(leaf).tobytes())
    return bits.hexdigest()


def whole(shards):
    """The oracle: one process, the gradients of the shards added in their order."""
    p, losses = initial(), []
    for step in range(STEPS):
        found = [value_and_grad(p, *batch(step, r, shards)) for r in range(shards)]
        losses.append(float(np.mean([float(loss) for loss, _ in found])))
        total = jax.tree.map(lambda *g: ordered(g), *[g for _, g in found])
        p = descend(p, jax.tree.map(lambda g: jnp.asarray(g / np.float32(shards)), total))
    return p, losses


def ordered(arrays):
    total = np.asarray(arrays[0]).copy()
    for array in arrays[1:]:
        total += np.asarray(array)
    return total


def train(group, buckets, watches):
    p, losses = initial(), []
    tapped = jax.jit(jax.value_and_grad(lambda p, x, y: loss_of(buckets.watch(p), x, y)))
    for step in range(STEPS):
        mine = batch(step, group.rank, group.size)
        if watches:
            loss, _ = jax.block_until_ready(tapped(p, *mine))
            gradients = buckets.finish(p)
        else:
            loss, gradients = value_and_grad(p, *mine)
            gradients = buckets.all_reduce(gradients)
        losses.append(float(group.all_reduce(np.float32(loss), 'avg')))
        p = descend(p, gradients)
    return p, losses


def adam(step, p, g, m, v):
    m[...] = np.float32(0.9) * m + np.float32(0.1) * g
    v[...] = np.float32(0.99) * v + np.float32(0.01) * g * g
    p -= np.float32(0.05) * m / (np.float32(1 - 0.9 ** step) * np.sqrt(v) + np.float32(1e-6))


@jax.jit
def momentum(p, g, m):
    m = 0.9 * m + g
    return p - 0.1 * m, m


def buckets(group):
    found = {}
    for size in (1, 100, 1 << 20):
        made = data_parallel.GradientBuckets(group, initial(), bucket_bytes=size, first_bucket_bytes=size)
        found[f'buckets of {size}'] = made.bucket_count
        p, losses = train(group, made, watches=size == 100)
        assert isinstance(jax.tree.leaves(p)[0], jax.Array)
        found.setdefault('digests', []).append(digest(p))
        found.setdefault('losses', []).append(losses)
    if group.rank == 0:
        p, losses = whole(group.size)
        found['wanted'], found['wanted losses'] = digest(p), losses
        found['one losses'] = whole(1)[1]
    return found


def shards(group):
    found = {'digests': []}
    if group.rank == 0:
        one = jax.tree.map(np.array, initial())
        m, v = (jax.tree.map(np.zeros_like, one) for _ in range(2))
        for step in range(STEPS):
            gradients = [value_and_grad(one, *batch(step, r, group.size))[1] for r in range(group.size)]
            total = jax.tree.map(lambda *g: ordered(g) / np.float32(group.size), *gradients)
            for arrays in zip(*(jax.tree.leaves(tree) for tree in (one, total, m, v))):
                adam(step + 1, *arrays)
        found['wanted'] = digest(one)
    for size in (1, 64, 1 << 20):
        optimizer = data_parallel.ShardedOptimizer(group, initial(), adam, states=(None, np.float32), bucket_bytes=size,
                                                   first_bucket_bytes=size)
        p = optimizer.parameters()
        for step in range(STEPS):
            if step == 3:    # another one goes on
                state = optimizer.state()
                optimizer = data_parallel.ShardedOptimizer(group, initial(), adam, states=(None, np.float32))
                optimizer.set_state(state)
                p = optimizer.parameters()
            _, gradients = value_and_grad(p, *batch(step, group.rank, group.size))
            p = optimizer.step(gradients)
        assert isinstance(jax.tree.leaves(p)[0], jax.Array)
        found['digests'].append(digest(p))
        found['state'] = int(group.all_reduce(np.int64(optimizer.state_bytes)))
    optimizer = data_parallel.ShardedOptimizer(group, initial(), lambda step, *arrays: momentum(*arrays))
    optimizer.step(jax.tree.map(jnp.ones_like, initial()))
    moved = optimizer.parameters()['last'][1] - initial()['last'][1]
    found['momentum'] = [float(x) for x in moved]
    return found


def calls(group):
    """numpy's results."""
    rank, size = group.rank, group.size
    own = np.arange(size * 3, dtype=np.float64).reshape(size, 3) + rank
    everybody = [own - rank + r for r in range(size)]
    checks = {
        'all_reduce': (group.all_reduce(own), sum(everybody)),
        'max': (group.all_reduce(own, 'max'), everybody[-1]),
        'premul_sum': (group.all_reduce(own, 'premul_sum', factor=0.5), sum(everybody) / 2),
        'all_gather': (group.all_gather(own), np.stack(everybody)),
        'reduce_scatter': (group.reduce_scatter(own), sum(everybody)[rank:rank + 1]),
        'all_to_all': (group.all_to_all(own), np.stack([x[rank] for x in everybody])),
        'broadcast': (group.broadcast(own, 1), everybody[1]),
        'jax': (group.all_reduce(jnp.float32(rank) + jnp.ones((2, 2), jnp.bfloat16)),
                np.full((2, 2), sum(range(1, size + 1)), np.float32)),
        'a number': (group.all_reduce(np.int64(rank)), np.int64(sum(range(size)))),
    }
    out = own.copy()
    pending = group.all_reduce(out, out=out, wait=False)
    assert pending.result(60) is out
    checks['in place'] = (out, sum(everybody))
    group.send(own, (rank + 1) % size, tag=3, wait=False)
    checks['receive'] = (group.receive(own, (rank - 1) % size, tag=3), everybody[(rank - 1) % size])
    part = group.subgroup('pair', [1, 0]) if rank < 2 else None
    if part is not None:
        checks['subgroup'] = (part.all_gather(np.int32(rank)), np.array([1, 0], np.int32))
    with group.coalesced():
        together = [group.all_reduce(own), group.all_reduce(jnp.float32(rank) + jnp.ones((2, 2), jnp.bfloat16)),
                    group.all_gather(np.int32(rank)), group.broadcast(own, 1), group.barrier()]
    checks |= {f'together {i}': pair for i, pair in enumerate(zip(
        [pending.result() for pending in together[:-1]],
        [sum(everybody), np.full((2, 2), sum(range(1, size + 1)), np.float32), np.arange(size), everybody[1]]))}
    group.barrier()
    wrong = [name for name, (got, wanted) in checks.items()
             if np.shape(got) != np.shape(wanted) or not np.array_equal(np.asarray(got, np.float64), wanted)]
    return {'wrong': wrong}


def errors(group):
    """What one rank does wrong, each in a group of its own."""
    said = {}

    def on(name, run):
        part = group.subgroup(name, range(group.size), timeout=60)
        try:
            run(part)
            said[name] = ''
        except Exception as error:  # pylint: disable=broad-except  # what it says is looked at
            said[name] = f'{type(error).__name__}: {error}'

    p = initial()
    odd = group.rank == 1

    def other_shape(part):
        data_parallel.GradientBuckets(part, {**p, 'none': jnp.zeros(3)} if odd else p)

    def missing(part):
        made = data_parallel.GradientBuckets(part, p)
        made.all_reduce({'first': p['first']} if odd else p)

    def wrong_shape(part):
        made = data_parallel.GradientBuckets(part, p)
        made.all_reduce({**p, 'last': [jnp.zeros(3), jnp.zeros(3)]} if odd else p)

    def update(part):
        def fails(step, *arrays):
            if odd:
                raise ArithmeticError('a wrong number')
        data_parallel.ShardedOptimizer(part, p, fails).step(p)

    def rows(part):
        part.reduce_scatter(np.zeros(part.size + (1 if odd else 0)))

    def root(part):
        part.broadcast(np.zeros(3), None if odd else 0)

    def sizes(part):
        data_parallel.GradientBuckets(part, p, bucket_bytes='many' if odd else 100)

    def no_leaf(part):
        optimizer_of(part).set_parameters({'first': p['first']} if odd else p)

    def other_root(part):
        optimizer_of(part).set_parameters(p, None if odd else 0)

    def other_leaf(part):
        optimizer_of(part).set_parameters({**p, 'none': jnp.zeros(())} if odd else p)

    def no_state(part):
        optimizer = optimizer_of(part)
        state = optimizer.state()
        optimizer.set_state({**state, 'states': [{'first': p['first']}]} if odd else state)

    def other_state(part):
        optimizer = optimizer_of(part)
        state = optimizer.state()
        optimizer.set_state({**state, 'states': [{**p, 'none': jnp.zeros(3)}]} if odd else state)

    def left(part):
        with part.coalesced():
            part.all_reduce(np.zeros(3))
            if odd:
                raise KeyError('of the program')

    def in_block(part):
        with part.coalesced():
            part.all_reduce(np.zeros(3))
            part.reduce_scatter(np.zeros(part.size + (1 if odd else 0)))

    def too_early(part):
        with part.coalesced():
            part.all_reduce(np.zeros(3)).result()
    for run in (left, in_block, too_early, other_shape, missing, wrong_shape, update, rows, root, sizes, no_leaf, other_root, other_leaf, no_state,
                other_state):
        on(run.__name__, run)
    return said


def optimizer_of(part):
    return data_parallel.ShardedOptimizer(part, initial(), lambda step, x, g, m: None)


def again(group):
    """After a step that all ranks refuse; of what comes twice the first counts."""
    p, found = initial(), {}
    ones = jax.tree.map(jnp.ones_like, p)
    wrong = {**ones, 'first': {**ones['first'], 'w': jnp.zeros(3)}}    # the last to come
    for size in (1, 1 << 20):
        buckets = data_parallel.GradientBuckets(group, p, bucket_bytes=size, first_bucket_bytes=size)
        optimizer = data_parallel.ShardedOptimizer(group, p, lambda step, x, g, m: (x - g, m), bucket_bytes=size,
                                                   first_bucket_bytes=size)
        said = found.setdefault('said', [])
        for step in (buckets.all_reduce, optimizer.step):
            for made, text in ((wrong, 'first/w'), ({**ones, 'more': jnp.zeros(3)}, 'more')):
                try:
                    step(made)
                except ValueError as error:
                    said.append(text if text in str(error) else str(error))
        found.setdefault('averages', []).append(float(buckets.all_reduce(ones)['first']['w'][0, 0]))
        moved = optimizer.step(ones)['last'][1] - p['last'][1]
        found.setdefault('moved', []).append([float(x) for x in moved])
        buckets.ready('last/1', ones['last'][1])
        try:
            buckets.ready('last/1', 9 * ones['last'][1])
        except ValueError as error:
            said.append(str(error))
        for name, leaf in (('none', ones['none']), ('last/0', ones['last'][0]), ('first/w', ones['first']['w']),
                           ('first/b', ones['first']['b'])):
            buckets.ready(name, leaf)
        found.setdefault('first', []).append(float(buckets.finish()['last'][1][0]))
    return found


if __name__ == '__main__':
    world = process_group.init(timeout=100)
    print(json.dumps({scenario: globals()[scenario](world) for scenario in sys.argv[1:]}), flush=True)
    world.barrier()
    world.close()
