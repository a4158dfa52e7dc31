# SPDX-License-Identifier: Apache-2.0
"""What run.py runs: one function per library, a training or a solve as its documentation begins.

Each makes its own inputs from fixed seeds, runs on JAX's default device and returns a tree of arrays,
the same on any right device up to `rtol` (steps of an optimizer and of a sampler carry rounding on).
"""
import functools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

CASES = {}


def case(rtol, refused=None):
    """`refused`: the library's own words where it lets no platform in that it does not know by name."""
    def add(function):
        CASES[function.__name__] = function, rtol, refused
        return function
    return add


@functools.cache
def blobs(count=256, features=16, classes=4):
    """Points around the corners of a cube, and which corner each is of."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, count)
    corner = rng.normal(size=(classes, features))
    return ((corner[label] + rng.normal(size=(count, features))).astype(np.float32),
            label.astype(np.int32))


def cross_entropy(logits, label):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], 1))


def train(loss, parameters, steps=30, optimizer=None):
    """Steps of optax's Adam -> losses."""
    import optax
    optimizer = optimizer or optax.adam(1e-2)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state):
        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    losses = []
    for _ in range(steps):
        parameters, state, value = step(parameters, state)
        losses.append(value)
    return jnp.stack(losses)


@case(1e-3)
def flax_linen():
    from flax import linen as nn
    x, label = blobs()

    class Classifier(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.LayerNorm()(nn.gelu(nn.Dense(64)(x)))
            return nn.Dense(4)(x)

    model = Classifier()
    parameters = model.init(jax.random.key(0), x)
    return train(lambda p: cross_entropy(model.apply(p, x), label), parameters)


@case(1e-3)
def flax_nnx():
    import optax
    from flax import nnx
    x, label = blobs()

    class Classifier(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(16, 64, rngs=rngs)
            self.norm = nnx.BatchNorm(64, rngs=rngs)
            self.last = nnx.Linear(64, 4, rngs=rngs)

        def __call__(self, x):
            return self.last(nnx.relu(self.norm(self.first(x))))

    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss, gradients = nnx.value_and_grad(lambda m: cross_entropy(m(x), label))(model)
        optimizer.update(model, gradients)
        return loss

    return jnp.stack([step(model, optimizer) for _ in range(30)])


@case(1e-3)
def optax_optimizers():
    import optax
    x, label = blobs()
    weights = {'w': jnp.zeros((16, 4)), 'b': jnp.zeros(4)}

    def loss(p):
        return cross_entropy(x @ p['w'] + p['b'], label)

    chain = optax.chain(optax.clip_by_global_norm(1.0),
                        optax.adamw(optax.cosine_decay_schedule(1e-2, 30)))
    return [train(loss, weights, optimizer=o)
            for o in (chain, optax.lion(1e-3), optax.rmsprop(1e-3), optax.lamb(1e-2))]


@case(1e-3)
def equinox():
    import equinox as eqx
    x, label = blobs()
    model = eqx.nn.MLP(16, 4, 64, 2, key=jax.random.key(0))
    parameters, static = eqx.partition(model, eqx.is_array)
    return train(lambda p: cross_entropy(jax.vmap(eqx.combine(p, static))(x), label), parameters)


@case(1e-3)
def haiku():
    import haiku as hk
    x, label = blobs()
    model = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([64, 64, 4])(x)))
    parameters = model.init(jax.random.key(0), x)
    return train(lambda p: cross_entropy(model.apply(p, x), label), parameters)


@case(1e-3)
def keras():
    import keras as k   # run.py sets its backend
    x, label = blobs()
    k.utils.set_random_seed(0)
    model = k.Sequential([k.layers.Input((16,)), k.layers.Dense(64, activation='relu'),
                          k.layers.Dense(4)])
    model.compile('adam', k.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(x, label, batch_size=64, epochs=5, shuffle=False, verbose=0)
    return np.array(history.history['loss'])


@case(5e-2)
def numpyro():
    import numpyro as npr
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 3)).astype(np.float32)
    y = (x @ np.array([1., -2, .5]) + .3 * rng.normal(size=100)).astype(np.float32)

    def model(x, y):
        w = npr.sample('w', dist.Normal(jnp.zeros(3), 1).to_event(1))
        s = npr.sample('s', dist.HalfNormal(1))
        npr.sample('y', dist.Normal(x @ w, s), obs=y)

    chain = MCMC(NUTS(model), num_warmup=200, num_samples=300, progress_bar=False)
    chain.run(jax.random.key(0), x, y)
    # Chains part at the first rounding: their means stay.
    return {name: values.mean(0) for name, values in chain.get_samples().items()}


@case(5e-2)
def blackjax():
    import blackjax as bj
    mean = jnp.array([3., -4.])
    kernel = bj.hmc(lambda z: -.5 * jnp.sum((z - mean) ** 2), step_size=.3,
                    inverse_mass_matrix=jnp.ones(2), num_integration_steps=10)

    @jax.jit
    def run(state, key):
        def one(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position
        return jax.lax.scan(one, state, jax.random.split(key, 2000))[1]

    return run(kernel.init(jnp.zeros(2)), jax.random.key(0))[200:].mean(0)


@case(1e-3)
def jaxopt():
    import jaxopt as jo
    x, label = blobs()

    def loss(w):
        return cross_entropy(x @ w, label) + 1e-2 * jnp.sum(w ** 2)

    lbfgs = jo.LBFGS(loss, maxiter=50).run(jnp.zeros((16, 4))).params
    newton = jo.GaussNewton(lambda z: jnp.array([z[0] ** 2 + z[1] - 3, z[0] * z[1] - 2])).run(
        jnp.array([2., 2.])).params
    return lbfgs, newton


@case(1e-3)
def diffrax():
    import diffrax as dfx
    term = dfx.ODETerm(lambda t, y, a: jnp.array([a * y[0] - y[0] * y[1], y[0] * y[1] - y[1]]))

    def solve(a):
        return dfx.diffeqsolve(term, dfx.Tsit5(), 0., 10., .1, jnp.array([1., 2.]), args=a,
                               saveat=dfx.SaveAt(ts=jnp.linspace(0, 10, 50)),
                               stepsize_controller=dfx.PIDController(rtol=1e-5, atol=1e-5)).ys

    return jax.jit(solve)(1.5), jax.jit(jax.grad(lambda a: jnp.sum(solve(a))))(1.5)


@case(1e-3)
def optimistix():
    import optimistix as optx
    root = optx.root_find(lambda y, _: jnp.tanh(y) + y - 1, optx.Newton(1e-6, 1e-6), jnp.array(.1))
    least = optx.least_squares(lambda y, _: jnp.array([10 * (y[1] - y[0] ** 2), 1 - y[0]]),
                               optx.LevenbergMarquardt(1e-6, 1e-6), jnp.array([-1.2, 1.]))
    return root.value, least.value


@case(1e-3)
def lineax():
    import lineax as lx
    rng = np.random.default_rng(2)
    a = rng.normal(size=(64, 64)).astype(np.float32)
    spd = lx.MatrixLinearOperator(jnp.asarray(a @ a.T / 64 + np.eye(64, dtype=np.float32)),
                                  lx.positive_semidefinite_tag)
    b = jnp.asarray(rng.normal(size=64).astype(np.float32))
    wide = lx.MatrixLinearOperator(jnp.asarray(a[:, :16]))
    return (lx.linear_solve(spd, b, lx.CG(1e-6, 1e-6)).value, lx.linear_solve(spd, b).value,
            lx.linear_solve(wide, b, lx.QR()).value)


@case(1e-3)
def distrax():
    import distrax as dx
    flow = dx.Transformed(dx.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3)),
                          dx.Block(dx.Tanh(), 1))
    x, log_prob = jax.jit(lambda key: flow.sample_and_log_prob(seed=key, sample_shape=(100,)))(
        jax.random.key(0))
    return x, log_prob, dx.Categorical(logits=x).entropy()


@case(1e-3)
def tensorflow_probability():
    import tensorflow_probability.substrates.jax as tfp
    d = tfp.distributions
    x = jnp.linspace(.1, 5, 100)
    mixture = d.MixtureSameFamily(d.Categorical(probs=jnp.array([.3, .7])),
                                  d.Normal(jnp.array([0., 2.]), jnp.array([1., .5])))
    process = d.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic(), x[:, None], jitter=1e-3)
    return (jax.jit(mixture.log_prob)(x), jax.jit(d.Gamma(2., 3.).log_prob)(x),
            jax.jit(process.log_prob)(jnp.sin(x)), d.StudentT(3., 0., 1.).cdf(x))


@case(1e-3)
def orbax():
    import orbax.checkpoint as ocp
    state = {'w': jnp.arange(1000.).reshape(10, 100), 'step': jnp.array(3)}
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder + '/1', state)
        checkpointer.wait_until_finished()
        return checkpointer.restore(folder + '/1', jax.tree.map(jnp.zeros_like, state))


@case(1e-3)
def penzai():
    from penzai import pz
    from penzai.models import simple_mlp
    model = simple_mlp.MLP.from_config(name='mlp', init_base_rng=jax.random.key(0),
                                       feature_sizes=[16, 64, 4])
    x, _ = blobs()
    run = jax.jit(lambda x: model(pz.nx.wrap(x, 'batch', 'features')).unwrap('batch', 'features'))
    return run(jnp.asarray(x))


@case(2e-2)
def jax_md():
    from jax_md import energy, simulate, space
    displacement, shift = space.periodic(8.)
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(5.) * 1.6] * 2), -1).reshape(-1, 2)
    potential = energy.lennard_jones_pair(displacement)
    init, step = simulate.nve(potential, shift, 1e-3)
    state = init(jax.random.key(0), grid, kT=.1)
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 200, lambda _, s: step(s), s))(state)
    return state.position, potential(state.position)


@case(2e-2, refused='Unsupported device')   # MuJoCo's loader: cpu, gpu and tpu
def brax():
    from brax import envs
    environment = envs.create('inverted_pendulum', backend='positional')
    state = jax.jit(environment.reset)(jax.random.key(0))

    @jax.jit
    def run(state):
        def one(state, _):
            state = environment.step(state, jnp.full(environment.action_size, .1))
            return state, state.obs
        return jax.lax.scan(one, state, None, 20)[1]

    return run(state)
