# SPDX-License-Identifier: Apache-2.0
"""Host callbacks of JAX on a Hekla platform: pure_callback, io_callback, debug.callback,
debug.print and checks.

JAX's own rules know four platforms. Through the C API a program reaches its host by stablehlo.send
and recv: each operand of a callback goes out on a channel of its own, each result comes back on
one, and the client joins the channels to a Python function that it calls when the last operand is
there. Tokens order what belongs to one callback, and callbacks of one ordered effect.
"""
import functools

import numpy as np

# What the client looks for in the attributes of a transfer.
HANDLER = 'pjrt_rendezvous'
SEND_TO_HOST, RECEIVE_FROM_HOST = 2, 3


def register(platform):
    """Adds the rules for `platform`, which JAX knows already. Raises where this JAX has not what
    they are made of; callbacks then stay what they were, errors in JAX's words."""
    from jax._src import callback, checkify, debugging
    from jax._src.interpreters import mlir
    rules = {
        callback.pure_callback_p: _pure_callback,
        callback.io_callback_p: _io_callback,
        debugging.debug_callback_p: _debug_callback,
        debugging.debug_print_p: _debug_print,
        checkify.check_p: _check,
    }
    for primitive, rule in rules.items():
        # A rule's result holds the numbers of its channels: it must not be used again.
        mlir.register_lowering(primitive, rule, platform=platform, cacheable=False)


def _pure_callback(ctx, *args, callback, sharding, **params):
    from jax._src import callback as jax_callback
    call = functools.partial(jax_callback.pure_callback_impl, callback=callback, sharding=None,
                             **params)
    return _emit(ctx, call, None, args, _device(ctx, sharding))[0]


def _io_callback(ctx, *args, callback, sharding, ordered, **params):
    from jax._src import callback as jax_callback
    call = functools.partial(jax_callback.io_callback_impl, callback=callback, sharding=None,
                             ordered=ordered, **params)
    effect = jax_callback._OrderedIOEffect if ordered else None
    return _emit_effect(ctx, call, effect, args, _device(ctx, sharding))


def _debug_callback(ctx, *args, effect, partitioned, callback, **params):
    from jax._src import debugging
    if _free_axes(ctx):
        return _on_one_of_free_axes(ctx, debugging.debug_callback_p, args, effect=effect,
                                    partitioned=partitioned, callback=callback, **params)

    def call(*values):
        debugging.debug_callback_p.impl(*values, effect=effect, partitioned=partitioned,
                                        callback=callback, **params)
        return ()
    return _emit_debug(ctx, call, effect, partitioned, args)


def _debug_print(ctx, *args, ordered, partitioned, **params):
    from jax._src import debugging
    if _free_axes(ctx):
        return _on_one_of_free_axes(ctx, debugging.debug_print_p, args, ordered=ordered,
                                    partitioned=partitioned, **params)

    def call(*values):
        debugging.debug_print_p.impl(*values, ordered=ordered, partitioned=partitioned, **params)
        return ()
    effect = debugging.ordered_debug_effect if ordered else debugging.debug_effect
    return _emit_debug(ctx, call, effect, partitioned, args)


def _check(ctx, *args, err_tree, debug):
    from jax._src import checkify, config
    if debug:
        return []
    if not config.xla_runtime_errors.value:
        raise checkify.functionalization_error
    call = functools.partial(checkify.python_err, err_tree)
    return _emit(ctx, call, None, args, None)[0]


def _emit_debug(ctx, call, effect, partitioned, args):
    from jax._src import effects
    device = None if partitioned else _device(ctx, None)
    ordered = effects.ordered_effects.contains(effect)
    return _emit_effect(ctx, call, effect if ordered else None, args, device)


def _emit_effect(ctx, call, ordered_effect, args, device):
    """The results; an ordered effect's token goes through the callback."""
    from jax._src.interpreters import mlir
    if ordered_effect is None:
        return _emit(ctx, call, None, args, device)[0]
    results, token = _emit(ctx, call, ctx.tokens_in.get(ordered_effect), args, device)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({ordered_effect: token})))
    return results


def _emit(ctx, call, token, args, device):
    """Sends `args`, calls `call` on the host and receives its results. Returns them and the token
    that comes after the call."""
    from jax._src import config, core
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo
    module = ctx.module_context
    if len(module.platforms) > 1:
        raise NotImplementedError('callbacks in programs that are lowered for several platforms')
    backend = module.get_backend()
    token = token or hlo.create_token()
    avals_in, avals_out = ([core.physical_aval(aval) for aval in avals]
                           for avals in (ctx.avals_in, ctx.avals_out))
    # Arrays without elements stay here: there is nothing to transfer.
    sent = [(arg, aval) for arg, aval in zip(args, avals_in) if aval.size]
    received = [aval for aval in avals_out if aval.size]
    # Something must go out for the call to begin, and come back for its end to be known.
    signal = core.ShapedArray((), np.uint8)
    is_signalled, is_answered = not sent, not received
    if is_signalled:
        sent = [(mlir.ir_constant(np.zeros((), np.uint8)), signal)]
    if is_answered:
        received = [signal]
    sends, receives, outputs = [], [], []
    for arg, _ in sent:
        sends.append(module.new_channel())
        token = _send(sends[-1], token, arg, device)
    for aval in received:
        receives.append(module.new_channel())
        output, token = _receive(receives[-1], token, aval, device)
        outputs.append(output)
    function = functools.partial(_call_on_host, call, avals_in, avals_out, is_signalled,
                                 is_answered, config.enable_x64.value)
    module.add_host_callback(_join(backend, function, [aval for _, aval in sent], received, sends,
                                   receives))
    outputs = iter([] if is_answered else outputs)
    results = [next(outputs) if aval.size else mlir.ir_constant(np.zeros(aval.shape, aval.dtype))
               for aval in avals_out]
    return results, token


def _call_on_host(call, avals_in, avals_out, is_signalled, is_answered, x64, *values):
    from jax._src import config, dtypes
    values = iter(() if is_signalled else values)
    args = [next(values) if aval.size else np.zeros(aval.shape, aval.dtype) for aval in avals_in]
    checked = []
    with config.enable_x64(x64):  # the thread's own, and the program's was the caller's
        results = tuple(call(*args))
        if len(results) != len(avals_out):
            raise RuntimeError('Mismatched number of outputs from callback. '
                               f'Expected: {len(avals_out)}, Actual: {len(results)}')
        for i, (result, aval) in enumerate(zip(results, avals_out)):
            array = dtypes.canonicalize_value(np.asarray(result))
            for what in ('shape', 'dtype'):
                if getattr(array, what) != getattr(aval, what):
                    raise RuntimeError(f'Incorrect output {what} for return value #{i}: Expected: '
                                       f'{getattr(aval, what)}, Actual: {getattr(array, what)}')
            if aval.size:
                checked.append(np.asarray(array, order='C'))
    return (np.zeros((), np.uint8),) if is_answered else tuple(checked)


def _join(backend, function, sent, received, sends, receives):
    """What the client is given at compile time."""
    import pickle
    from jax._src import callback
    shapes = [[callback._aval_to_xla_shape(aval) for aval in avals] for avals in (sent, received)]
    return backend.make_python_callback_from_host_send_and_recv(
        function, shapes[0], shapes[1], sends, receives, pickle.dumps)


def _free_axes(ctx):
    """The mesh axes that a shard_map around leaves to the partitioner."""
    from jax._src import sharding_impls
    axes = ctx.module_context.axis_context
    if not isinstance(axes, sharding_impls.SPMDAxisContext):
        return ()
    return tuple(name for name in axes.mesh.axis_names if name not in axes.manual_axes)


def _on_one_of_free_axes(ctx, primitive, args, **params):
    """The primitive on whole arrays, by the first device along the axes that are free: one call for
    each instance of the shard_map around, as JAX has it on its own platforms."""
    from jax._src import shard_map
    from jax._src.interpreters import mlir
    from jax._src.lax import lax
    from jax._src.lax.control_flow import conditionals
    from jax._src.lax.parallel import axis_index
    free = _free_axes(ctx)

    def call(*values):
        def once():
            return conditionals.cond(lax.eq(axis_index(free), lax._const(axis_index(free), 0)),
                                     lambda: primitive.bind(*values, **params), lambda: [])
        return shard_map.shard_map(once, in_specs=(), out_specs=[])()
    return mlir.lower_fun(call)(ctx, *args)


def _device(ctx, sharding):
    """The number of the device that calls for all of a program over several; None: each that runs
    the program does."""
    from jax._src import sharding_impls
    axes = ctx.module_context.axis_context
    if isinstance(axes, sharding_impls.SPMDAxisContext):
        if sharding is not None:
            raise NotImplementedError('a callback on a device of choice inside of shard_map')
        if set(axes.manual_axes) != set(axes.mesh.axis_names):
            raise NotImplementedError('callbacks where some mesh axes are left to the partitioner')
        return None
    if not isinstance(axes, sharding_impls.ShardingContext) or axes.num_devices == 1:
        return None
    if sharding is None:
        return 0
    return list(axes.device_assignment).index(next(iter(sharding.device_set)))


def _set_device(op, device):
    from jax._src.lib.mlir import ir
    if device is not None:
        op.attributes['mhlo.sharding'] = ir.StringAttr.get(f'{{maximal device={device}}}')


def _transfer_attributes(channel):
    from jax._src.lib.mlir import ir
    return ir.DictAttr.get({
        '_xla_host_transfer_handler_name': ir.StringAttr.get(HANDLER),
        '_xla_host_transfer_rendezvous': ir.StringAttr.get(str(channel))})


def _send(channel, token, value, device):
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo
    op = hlo.SendOp([value], token, hlo.ChannelHandle.get(channel, SEND_TO_HOST),
                    is_host_transfer=ir.BoolAttr.get(True))
    op.attributes['mhlo.frontend_attributes'] = _transfer_attributes(channel)
    _set_device(op, device)
    return op.result


def _receive(channel, token, aval, device):
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo
    array = ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))
    op = hlo.RecvOp([array, hlo.TokenType.get()], token,
                    hlo.ChannelHandle.get(channel, RECEIVE_FROM_HOST),
                    is_host_transfer=ir.BoolAttr.get(True))
    op.attributes['mhlo.frontend_attributes'] = _transfer_attributes(channel)
    _set_device(op, device)
    return op.results
