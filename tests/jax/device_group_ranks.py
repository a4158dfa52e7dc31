# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_device_groups.py do, in a process each, with JAX on the device under test.

A rank prints what it has seen as one line of JSON.
"""
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from hekla import process_group

read = []    # addresses that the library was given
array_of = process_group.array_of


def recorded(x):
    read.append(x.ctypes.data)
    return array_of(x)


process_group.array_of = recorded


def address(x):
    """Where the host reads x; None: nowhere."""
    try:
        return x.unsafe_buffer_pointer()
    except jax.errors.JaxRuntimeError:
        return None


def check(group, device, dtype, count):
    """The names of the calls that do not give NumPy's results on the device."""
    rank, size = group.rank, group.size
    # Sums that int4 has.
    inputs = [((np.arange(size * count) % 2).reshape(size, count) + r).astype(dtype) for r in range(size)]
    wide = [np.asarray(x, np.float64) for x in inputs]
    x = jax.device_put(inputs[rank], device)
    some = x[0]    # computed on the device
    group.send(some, (rank + 1) % size, tag=7, wait=False)
    got = {
        'all_reduce': (group.all_reduce(x), sum(wide)),
        'max': (group.all_reduce(x, 'max'), wide[-1]),
        'all_gather': (group.all_gather(some), np.stack([w[0] for w in wide])),
        'reduce_scatter': (group.reduce_scatter(x), sum(wide)[rank:rank + 1]),
        'all_to_all': (group.all_to_all(x), np.stack([w[rank] for w in wide])),
        'broadcast': (group.broadcast(x, size - 1), wide[-1]),
        'receive': (group.receive(some, (rank - 1) % size, tag=7), wide[rank - 1][0]),
    }
    return [f'{name} of {dtype}[{size},{count}]' for name, (result, wanted) in got.items()
            if result.devices() != {device} or result.dtype != x.dtype or result.shape != wanted.shape
            or not np.array_equal(np.asarray(result, np.float64), wanted)]


def main():
    device = jax.devices()[0]
    group = process_group.init(timeout=100)
    wrong = []
    for dtype in (np.int32, np.float32, jnp.bfloat16, jnp.int8, jnp.int4):
        for count in (0, 1, 7, 1024, (1 << 18) + 3):
            if count < 2000 or dtype == np.float32:
                wrong += check(group, device, dtype, count)
    found = {'wrong': wrong, 'platform': device.platform}

    x = jax.block_until_ready(jax.device_put(np.ones((300, 1000), np.float32), device))
    read.clear()
    group.all_reduce(x)
    found['has address'] = address(x) is not None
    found['reads in place'] = address(x) in read
    # Nothing of the call keeps the array: a launch that consumes it works on its memory.
    before = address(x)
    twice = jax.jit(lambda a: a + a, donate_argnums=0)
    found['consumed in place'] = address(twice(x)) == before
    # Consumed and deleted while the call is under way.
    x, y = (jax.device_put(np.full((300, 1000), group.rank + 1, np.float32), device) for _ in range(2))
    pending, other = group.all_reduce(x, wait=False), group.all_reduce(y, wait=False)
    doubled = twice(x)
    y.delete()
    for each in (pending, other):
        found.setdefault('sums', []).append(sorted({float(v) for v in np.unique(each.result(60))}))
    found['doubled'] = float(doubled[0, 0])
    group.barrier()

    part = group.subgroup('deleted', range(group.size), timeout=60)
    gone = jax.device_put(np.ones(3, np.float32), device)
    if group.rank == 1:
        gone.delete()
    try:
        part.all_reduce(gone)
    except Exception as error:  # pylint: disable=broad-except  # what it says is looked at
        found['deleted'] = f'{type(error).__name__}: {error}'
    print(json.dumps(found), flush=True)
    group.barrier()
    group.close()


if __name__ == '__main__':
    sys.exit(main())
