# SPDX-License-Identifier: Apache-2.0
"""Training steps over several devices, as people write them in JAX: for benchmarks/sharded_steps.py.

PROGRAMS[name](jax, devices, size) gives a Program for that many devices; `size` is 'small' (runs in
a test) or 'large'. A step takes the parameters and the data and gives new parameters and the loss.
Shardings are NamedShardings over `devices`, so the same program over one device is the oracle of
the one over eight.
"""
import dataclasses
import functools
import typing


@dataclasses.dataclass
class Program:
    step: typing.Callable      # (parameters, data) -> (parameters, loss)
    parameters: dict           # name: NumPy array
    data: tuple                # NumPy arrays
    parameter_shardings: dict  # as `parameters`
    data_shardings: tuple

    def place(self, jax):
        """Parameters and data on the devices."""
        return ({name: jax.device_put(value, self.parameter_shardings[name])
                 for name, value in self.parameters.items()},
                tuple(jax.device_put(value, sharding)
                      for value, sharding in zip(self.data, self.data_shardings)))

    def compiled(self, jax):
        """The step, jitted; parameters are given away and come back as they were cut."""
        return jax.jit(self.step, donate_argnums=0, out_shardings=(self.parameter_shardings, None))


def _mesh(jax, devices, **axes):
    import numpy as np
    return jax.sharding.Mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes))


def _sharding(jax, mesh):
    def of(*axes):
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    return of


def _sgd(jax, loss, rate):
    def step(parameters, data):
        value, gradients = jax.value_and_grad(loss)(parameters, *data)
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), value
    return step


# --- a GPT: two layers, scan over them --------------------------------------------------------------

GPT_SIZES = {'small': dict(D=32, H=8, F=64, V=48, S=16, B=8), 'large': dict(D=256, H=8, F=1024, V=2048, S=128, B=8)}
LAYERS = 2


def _gpt_parameters(np, D, H, F, V, S, B):
    draw = np.random.RandomState(0)
    def weights(*shape, scale=0.05):
        return (draw.randn(*shape) * scale).astype(np.float32)
    parameters = {
        'embedding': weights(V, D), 'norm1': np.ones((LAYERS, D), np.float32), 'norm2': np.ones((LAYERS, D), np.float32),
        'qkv': weights(LAYERS, D, 3, H, D // H), 'out': weights(LAYERS, H, D // H, D),
        'up': weights(LAYERS, D, F), 'down': weights(LAYERS, F, D)}
    return parameters, (draw.randint(0, V, (B, S + 1)).astype(np.int32),)


def _gpt_loss(jax, constrain):
    jnp, lax = jax.numpy, jax.lax
    def layer(x, p):
        def norm(v, g):
            return v * lax.rsqrt(jnp.mean(v * v, -1, keepdims=True) + 1e-5) * g
        q, k, v = jnp.moveaxis(jnp.einsum('bsd,dchk->bschk', norm(x, p['norm1']), p['qkv']), 2, 0)
        scores = jnp.einsum('bqhk,bshk->bhqs', q, k) * (q.shape[-1] ** -0.5)
        n = scores.shape[-1]
        scores = jnp.where(jnp.arange(n)[:, None] >= jnp.arange(n)[None, :], scores, -1e9)
        mixed = jnp.einsum('bhqs,bshk->bqhk', jax.nn.softmax(scores, -1), v)
        x = constrain(x + jnp.einsum('bqhk,hkd->bqd', mixed, p['out']))
        hidden = jax.nn.gelu(norm(x, p['norm2']) @ p['up'])
        return constrain(x + hidden @ p['down']), None

    def loss(parameters, tokens):
        layers = {name: value for name, value in parameters.items() if name != 'embedding'}
        x = constrain(parameters['embedding'][tokens[:, :-1]])
        x, _ = lax.scan(layer, x, layers)
        logits = jax.nn.log_softmax(x @ parameters['embedding'].T)
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], 2))
    return loss


def _gpt(jax, devices, size, data, model):
    import numpy as np
    at = _sharding(jax, _mesh(jax, devices, data=data, model=model))
    parameters, tokens = _gpt_parameters(np, **GPT_SIZES[size])
    cut = {'embedding': at('model', None), 'norm1': at(), 'norm2': at(),
           'qkv': at(None, None, None, 'model', None), 'out': at(None, 'model', None, None),
           'up': at(None, None, 'model'), 'down': at(None, 'model', None)}
    constrain = functools.partial(jax.lax.with_sharding_constraint, shardings=at('data', None, None))
    return Program(_sgd(jax, _gpt_loss(jax, constrain), 0.1), parameters, tokens, cut, (at('data', None),))


def gpt_data(jax, devices, size):
    """The batch is cut."""
    return _gpt(jax, devices, size, len(devices), 1)


def gpt_tensor(jax, devices, size):
    """Megatron: heads and hidden features are cut."""
    return _gpt(jax, devices, size, 1, len(devices))


def gpt_data_tensor(jax, devices, size):
    """Both: 2 x 2 of four devices, 2 x 4 of eight."""
    data = 2 if len(devices) > 2 else 1
    return _gpt(jax, devices, size, data, len(devices) // data)


def gpt_fsdp(jax, devices, size):
    """The batch is cut, and so are the parameters, which are gathered where they are used."""
    import numpy as np
    at = _sharding(jax, _mesh(jax, devices, data=len(devices)))
    parameters, tokens = _gpt_parameters(np, **GPT_SIZES[size])
    cut = {'embedding': at(None, 'data'), 'norm1': at(), 'norm2': at(), 'qkv': at(None, 'data'),
           'out': at(None, None, None, 'data'), 'up': at(None, 'data'), 'down': at(None, None, 'data')}
    return Program(_sgd(jax, _gpt_loss(jax, lambda x: x), 0.1), parameters, tokens, cut, (at('data', None),))


# --- a ring: attention whose sequence is cut --------------------------------------------------------

def ring_attention(jax, devices, size):
    """Keys and values go round while each device attends to the part it has."""
    import numpy as np
    jnp, lax = jax.numpy, jax.lax
    B, S, H, K = {'small': (2, 32, 2, 8), 'large': (2, 1024, 8, 32)}[size]
    count = len(devices)
    mesh = _mesh(jax, devices, ring=count)
    at = _sharding(jax, mesh)
    draw = np.random.RandomState(1)
    D = H * K
    parameters = {name: (draw.randn(D, D) * D ** -0.5).astype(np.float32) for name in ('q', 'k', 'v', 'out')}
    data = tuple(draw.randn(B, S, D).astype(np.float32) for _ in range(2))
    cut = jax.sharding.PartitionSpec(None, 'ring')
    forward = [(i, (i + 1) % count) for i in range(count)]

    def attend(q, k, v):
        here = lax.axis_index('ring')
        n = q.shape[1]
        queries = here * n + jnp.arange(n)

        def turn(carry, i):
            k, v, top, total, mixed = carry
            keys = (here - i) % count * n + jnp.arange(n)
            scores = jnp.einsum('bqhk,bshk->bhqs', q, k) * (K ** -0.5)
            scores = jnp.where(queries[:, None] >= keys[None, :], scores, -1e9)
            high = jnp.maximum(top, scores.max(-1))
            weights = jnp.exp(scores - high[..., None])
            scale = jnp.exp(top - high)
            total = total * scale + weights.sum(-1)
            mixed = mixed * scale[..., None] + jnp.einsum('bhqs,bshk->bhqk', weights, v)
            k, v = (lax.ppermute(x, 'ring', forward) for x in (k, v))
            return (k, v, high, total, mixed), None

        zero = q.transpose(0, 2, 1, 3) * 0
        start = (k, v, zero[..., 0] - 1e9, zero[..., 0], zero)
        (_, _, _, total, mixed), _ = lax.scan(turn, start, jnp.arange(count))
        return (mixed / total[..., None]).transpose(0, 2, 1, 3)

    ring = jax.shard_map(attend, mesh=mesh, in_specs=(cut, cut, cut), out_specs=cut)

    def loss(p, x, y):
        heads = lambda w: (x @ w).reshape(B, S, H, K)
        mixed = ring(heads(p['q']), heads(p['k']), heads(p['v'])).reshape(B, S, D)
        return jnp.mean((mixed @ p['out'] - y) ** 2)

    return Program(_sgd(jax, loss, 0.5), parameters, data, {name: at() for name in parameters},
                   (at(None, 'ring'), at(None, 'ring')))


# --- a U-Net whose images are cut in space ----------------------------------------------------------

def unet(jax, devices, size):
    """Convolutions, pooling and upsampling over rows that lie on several devices."""
    import numpy as np
    jnp, lax = jax.numpy, jax.lax
    B, N, C = {'small': (2, 32, 4), 'large': (4, 128, 16)}[size]
    at = _sharding(jax, _mesh(jax, devices, rows=len(devices)))
    draw = np.random.RandomState(2)
    def kernel(size, i, o):
        return (draw.randn(size, size, i, o) * (size * size * i) ** -0.5).astype(np.float32)
    parameters = {'in': kernel(3, 3, C), 'down': kernel(3, C, 2 * C), 'middle': kernel(3, 2 * C, 2 * C),
                  'up': kernel(2, 2 * C, C), 'join': kernel(3, 2 * C, C), 'out': kernel(1, C, 3)}
    data = tuple(draw.randn(B, N, N, 3).astype(np.float32) for _ in range(2))

    def conv(x, w, stride=1):
        return lax.conv_general_dilated(x, w, (stride, stride), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))

    def loss(p, x, y):
        first = jax.nn.relu(conv(x, p['in']))
        pooled = lax.reduce_window(first, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')
        deep = jax.nn.relu(conv(jax.nn.relu(conv(pooled, p['down'])), p['middle']))
        up = lax.conv_transpose(deep, p['up'], (2, 2), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
        joined = jax.nn.relu(conv(jnp.concatenate([first, up], -1), p['join']))
        return jnp.mean((conv(joined, p['out']) - y) ** 2)

    cut = at(None, 'rows', None, None)
    return Program(_sgd(jax, loss, 0.05), parameters, data, {name: at() for name in parameters}, (cut, cut))


# --- a mixture of experts: tokens go to their expert by all_to_all -----------------------------------

def moe(jax, devices, size):
    """Each device has its experts; tokens are sent there and back."""
    import numpy as np
    jnp, lax = jax.numpy, jax.lax
    T, D, F = {'small': (64, 16, 32), 'large': (2048, 256, 512)}[size]
    count = len(devices)
    experts = 8  # of the whole program, on any number of devices
    mesh = _mesh(jax, devices, expert=count)
    at = _sharding(jax, mesh)
    spec = jax.sharding.PartitionSpec
    draw = np.random.RandomState(3)
    parameters = {'gate': (draw.randn(D, experts) * 0.1).astype(np.float32),
                  'up': (draw.randn(experts, D, F) * D ** -0.5).astype(np.float32),
                  'down': (draw.randn(experts, F, D) * F ** -0.5).astype(np.float32)}
    data = tuple(draw.randn(T, D).astype(np.float32) for _ in range(2))

    def layer(gate, up, down, x):
        choice = jnp.argmax(x @ gate, -1)
        weight = jnp.max(jax.nn.softmax(x @ gate), -1)
        n = x.shape[0]  # no token is dropped: each expert has room for all of a device's
        room = jnp.zeros((experts, n, x.shape[1]), x.dtype).at[choice, jnp.arange(n)].set(x)
        sent = lax.all_to_all(room.reshape(count, experts // count, n, -1), 'expert', 0, 0)
        hidden = jax.nn.relu(jnp.einsum('cend,edf->cenf', sent, up))
        back = lax.all_to_all(jnp.einsum('cenf,efd->cend', hidden, down), 'expert', 0, 0)
        return back.reshape(experts, n, -1)[choice, jnp.arange(n)] * weight[:, None]

    parts = jax.shard_map(layer, mesh=mesh, in_specs=(spec(), spec('expert'), spec('expert'), spec('expert')),
                          out_specs=spec('expert'))

    def loss(p, x, y):
        return jnp.mean((x + parts(p['gate'], p['up'], p['down'], x) - y) ** 2)

    return Program(_sgd(jax, loss, 0.1), parameters, data,
                   {'gate': at(), 'up': at('expert'), 'down': at('expert')}, (at('expert'), at('expert')))


PROGRAMS = {program.__name__: program for program in
            (gpt_data, gpt_tensor, gpt_data_tensor, gpt_fsdp, ring_attention, unet, moe)}
