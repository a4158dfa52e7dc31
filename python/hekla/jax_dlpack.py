# SPDX-License-Identifier: Apache-2.0
"""DLPack out of arrays on Hekla's devices: np.from_dlpack(x), torch.from_dlpack(x).

jaxlib packs arrays of platforms that it knows. Ours go through an array of jaxlib's CPU on the same
memory where the host can read it in place (CPUs; GPUs whose buffers are mapped), on a copy
elsewhere, and name themselves as memory of the CPU. What takes them must not write to them.
"""
import jax
import numpy as np

_platforms = set()


def _is_ours(x):
    return len(x.sharding.device_set) == 1 and x.platform() in _platforms


def _address(x):
    """Where the host reads the values of x; None: nowhere."""
    try:
        return x.unsafe_buffer_pointer()
    except jax.errors.JaxRuntimeError as error:  # most memory of most GPUs
        if 'UNIMPLEMENTED' not in str(error):
            raise
        return None


def _on_cpu(x, copy):
    """An array of jaxlib's CPU with the values of x, on its memory where that can be."""
    if copy:
        return jax.device_put(np.array(x), jax.devices('cpu')[0])
    result = jax.device_put(np.asarray(x), jax.devices('cpu')[0], may_alias=True)
    in_place = x.size == 0 or result.unsafe_buffer_pointer() == _address(x)
    if copy is False and not in_place:
        raise BufferError(f'the array is on {x.platform()}, in memory that the host does not read '
                          'in place: copy=False cannot be had')
    return result


def register(platform):
    """Lets arrays of `platform` be packed."""
    from jax._src import array, dlpack
    if not _platforms:
        pack, device_of = dlpack.to_dlpack, array.ArrayImpl.__dlpack_device__

        def to_dlpack(x, stream=None, src_device=None, *args, copy=None, **kwargs):
            if isinstance(x, array.ArrayImpl) and _is_ours(x):
                return pack(_on_cpu(x, copy), None, None, *args, **kwargs)
            return pack(x, stream, src_device, *args, copy=copy, **kwargs)

        def __dlpack_device__(self):
            if _is_ours(self):
                return dlpack.DLDeviceType.kDLCPU, 0
            return device_of(self)

        dlpack.to_dlpack = to_dlpack
        array.ArrayImpl.__dlpack_device__ = __dlpack_device__
    _platforms.add(platform)
