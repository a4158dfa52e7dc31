# SPDX-License-Identifier: Apache-2.0
"""The leaves of a state: which arrays and values a checkpoint keeps, and where their bytes are.

Arrays of NumPy, JAX (sharded ones too) and torch; `Part`, a box of a global array that this process
holds; and bool, int, float, str and bytes. Nothing here imports JAX or torch: who has one of their
arrays has loaded them.
"""
import dataclasses
import functools
import sys

import numpy as np

# NumPy's and ml_dtypes' names -> StableHLO's.
_FROM_NUMPY = {
    'bool': 'i1', 'int2': 'i2', 'int4': 'i4', 'int8': 'i8', 'int16': 'i16', 'int32': 'i32',
    'int64': 'i64', 'uint2': 'ui2', 'uint4': 'ui4', 'uint8': 'ui8', 'uint16': 'ui16',
    'uint32': 'ui32', 'uint64': 'ui64', 'float4_e2m1fn': 'f4E2M1FN', 'float6_e2m3fn': 'f6E2M3FN',
    'float6_e3m2fn': 'f6E3M2FN', 'float8_e3m4': 'f8E3M4', 'float8_e4m3': 'f8E4M3',
    'float8_e4m3fn': 'f8E4M3FN', 'float8_e4m3fnuz': 'f8E4M3FNUZ',
    'float8_e4m3b11fnuz': 'f8E4M3B11FNUZ', 'float8_e5m2': 'f8E5M2',
    'float8_e5m2fnuz': 'f8E5M2FNUZ', 'float8_e8m0fnu': 'f8E8M0FNU', 'bfloat16': 'bf16',
    'float16': 'f16', 'float32': 'f32', 'float64': 'f64', 'complex64': 'complex<f32>',
    'complex128': 'complex<f64>',
}
_TO_NUMPY = {name: numpy for numpy, name in _FROM_NUMPY.items()}
VALUES = (bool, int, float, str, bytes)
ASK = 'ask'


_known = {}  # NumPy dtypes -> StableHLO's names; NumPy takes microseconds to make up dtype.name


def dtype_name(dtype, where):
    """StableHLO's name of a NumPy dtype."""
    dtype = np.dtype(dtype)
    if dtype in _known:
        return _known[dtype]
    if not dtype.isnative:
        raise TypeError(f'{where} has the byte order of another machine ({dtype.str}); '
                        'use .astype(dtype.newbyteorder("="))')
    if dtype.name not in _FROM_NUMPY:
        raise TypeError(f'{where} has the dtype {dtype}, which a checkpoint does not keep')
    return _known.setdefault(dtype, _FROM_NUMPY[dtype.name])


def is_below_a_byte(name):
    return name in ('i2', 'i4', 'ui2', 'ui4') or name.startswith(('f4', 'f6'))


@functools.cache
def numpy_dtype(name):
    """The NumPy dtype of a StableHLO name; ml_dtypes for what NumPy lacks."""
    numpy = _TO_NUMPY.get(name)
    if numpy is None:
        raise TypeError(f'NumPy has no dtype for {name}')
    try:
        return np.dtype(numpy)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError as error:
            raise TypeError(f'{name} needs the package ml_dtypes') from error
        return np.dtype(getattr(ml_dtypes, numpy))


@dataclasses.dataclass(frozen=True)
class Part:
    """What this process holds of an array that several processes hold together.

    `array` (NumPy or torch) is the box that begins at `start` of a global array of `shape`. All
    processes of the group save the same names; their boxes cover the array, and equal boxes are
    copies of each other.
    """
    array: object
    start: tuple
    shape: tuple


@dataclasses.dataclass
class Box:
    """A box of a tensor and the array that holds it: `fetch()` gives it as NumPy, and is called
    before a save returns if the array is mutable or lies in this process's memory. `address()`, if
    there is one, is what its PJRT client says of where the array is."""
    start: tuple
    size: tuple
    fetch: object
    is_mutable: bool
    is_here: bool = False
    address: object = None


@dataclasses.dataclass
class Tensor:
    """A leaf, described: `holdings` are the boxes of all ranks as (rank, start, size), rank -1 for
    every rank; None where every rank holds all of it, and ASK where only the others know theirs."""
    dtype: str
    shape: tuple
    spec: str
    holdings: object
    boxes: list


def _is_jax(leaf):
    jax = sys.modules.get('jax')
    return jax is not None and isinstance(leaf, jax.Array)


def _is_key(leaf):
    jax = sys.modules['jax']
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_torch(leaf):
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(leaf, torch.Tensor)


def is_leaf(node):
    return (isinstance(node, (np.ndarray, np.generic, Part, *VALUES)) or _is_jax(node)
            or _is_torch(node))


def is_described(leaf):
    """Whether the leaf is a jax.ShapeDtypeStruct: an array that is wanted and not there yet."""
    jax = sys.modules.get('jax')
    return jax is not None and isinstance(leaf, jax.ShapeDtypeStruct)


def is_model(node):
    """A leaf of a tree that says what is wanted."""
    return is_leaf(node) or is_described(node)


def described_boxes(leaf, where):
    """[((start, size), device)] that a jax.ShapeDtypeStruct wants here; device None: the default."""
    shape = tuple(leaf.shape)
    if leaf.sharding is None:
        return [(((0,) * len(shape), shape), None)]
    if _is_key(leaf):
        raise TypeError(f'{where} is a ShapeDtypeStruct of PRNG keys with a sharding; leave that out')
    return [(_index_box(index, shape), device) for device, index in
            leaf.sharding.addressable_devices_indices_map(shape).items()]


def in_place(leaf, where):
    """((start, size) of the global array, its shape, a NumPy array over the leaf's own memory or None
    where only a copy will do) of an array that can be filled."""
    if isinstance(leaf, Part):
        describe(leaf, where)  # checks the box
        (_, size), _, array = in_place(leaf.array, where)
        return (tuple(leaf.start), size), tuple(leaf.shape), array
    if _is_torch(leaf) and leaf.device.type == 'cpu':
        _torch_dtype(leaf, where)
        plain = leaf.is_contiguous() and not leaf.is_conj() and not leaf.is_neg()
        return ((0,) * leaf.dim(), tuple(leaf.shape)), tuple(leaf.shape), (
            _torch_array(leaf, where) if plain else None)
    if isinstance(leaf, np.ndarray):
        if not leaf.flags.writeable:
            raise ValueError(f'{where} is read-only: it cannot be filled')
        return ((0,) * leaf.ndim, leaf.shape), leaf.shape, (
            leaf if leaf.flags.c_contiguous else None)
    raise TypeError(f'{where} is a {type(leaf).__name__}: NumPy arrays and torch tensors in this '
                    'process\'s memory are filled in place; others come from `like`')


def is_value(leaf):
    """Whether the leaf is kept as an item and not as a tensor."""
    return isinstance(leaf, VALUES) and not isinstance(leaf, np.generic)


def _torch_dtype(tensor, where):
    """Its dtype's name, which NumPy's is too; TypeError for what has no dense form."""
    torch = sys.modules['torch']
    if tensor.layout != torch.strided:
        raise TypeError(f'{where} is a {tensor.layout} tensor; only dense ones are kept')
    name = str(tensor.dtype).removeprefix('torch.')
    if name not in _FROM_NUMPY:
        raise TypeError(f'{where} has the dtype {tensor.dtype}, which a checkpoint does not keep')
    return name


def _torch_array(tensor, where):
    """A NumPy array over a torch tensor's memory; bfloat16 and the like through their bits."""
    torch = sys.modules['torch']
    if tensor.is_meta:
        raise TypeError(f'{where} is on the device meta, where tensors have no values')
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    try:
        return tensor.numpy()
    except TypeError:
        bits = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        return tensor.view(bits).numpy().view(numpy_dtype(_FROM_NUMPY[_torch_dtype(tensor, where)]))


def _dense(array):
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _index_box(index, shape):
    start, size = [], []
    for part, length in zip(index, shape):
        begin, end, _ = part.indices(length)
        start.append(begin)
        size.append(max(0, end - begin))
    return tuple(start), tuple(size)


def _numbers_text(numbers):
    """0-3,8*2: a list in which runs of equal steps are short, as runtime/checkpoint/sharding/mesh.h
    has it."""
    texts, i = [], 0
    while i < len(numbers):
        end, step = i + 1, 0
        if end < len(numbers):
            step = numbers[end] - numbers[i]
            while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
                end += 1
        if step == 0 and end - i > 1:
            texts.append(f'{numbers[i]}*{end - i}')
        elif end - i >= 4:
            texts.append(f'{numbers[i]}-{numbers[end - 1]}' + (f'/{abs(step)}' if abs(step) > 1 else ''))
        else:
            texts.append(str(numbers[i]))
            end = i + 1
        i = end
    return ','.join(texts)


_MAX_SPEC = 4096  # characters that a step keeps


@functools.lru_cache(64)
def _places_text(mesh):
    """The order of a mesh's devices and their granules, slices or hosts, where they are not as one
    expects."""
    devices = list(mesh.devices.flat)
    ids = [device.id for device in devices]
    granules = [getattr(device, 'slice_index', None) for device in devices]
    if None in granules or len(set(granules)) < 2:
        granules = [device.process_index for device in devices]
    text = ''
    if ids != list(range(len(ids))):
        text = f' devices=[{_numbers_text(ids)}]'
    if len(set(granules)) > 1:
        text += f' granules=[{_numbers_text(granules)}]'
    return text


def _spec_text(sharding):
    """mesh=(data:2) spec=(data,None) of a NamedSharding, for people; else ''. The order of the
    devices is left out where it would be too long."""
    mesh, spec = getattr(sharding, 'mesh', None), getattr(sharding, 'spec', None)
    if mesh is None or spec is None:
        return ''
    word = lambda name: f'"{name}"'  # noqa: E731
    dims = []
    for part in spec:
        if part is None or (isinstance(part, tuple) and not part):
            dims.append('None')
        elif isinstance(part, tuple):
            dims.append('(' + ','.join(word(name) for name in part) + ')')
        elif isinstance(part, str):
            dims.append(word(part))
        else:
            return ''
    axes = ','.join(f'{word(name)}:{size}' for name, size in mesh.shape.items())
    text, places = f'mesh=({axes}) spec=({",".join(dims)})', _places_text(mesh)
    return text + places if len((text + places).encode()) <= _MAX_SPEC else text


def _jax_tensor(array, rank_of_process):
    shape = tuple(array.shape)
    holdings = None
    if not array.is_fully_addressable or len(array.sharding.device_set) > 1:
        holdings = []
        for device, index in array.sharding.devices_indices_map(shape).items():
            start, size = _index_box(index, shape)
            holdings.append((rank_of_process(device.process_index), start, size))
        holdings = sorted(set(holdings))
        if array.is_fully_addressable:
            # Every process has such an array, cut among its own devices: copies of each other.
            boxes = sorted({holding[1:] for holding in holdings})
            holdings = None if len(boxes) == 1 else [(-1, *box) for box in boxes]
    boxes, seen = [], set()
    for shard in array.addressable_shards:
        start, size = _index_box(shard.index, shape)
        if (start, size) in seen:
            continue
        seen.add((start, size))
        # XLA's CPU gives its own memory, and works on a copy when such an array is donated later.
        boxes.append(Box(start, size, lambda data=shard.data: _dense(np.asarray(data)), False,
                         is_here=shard.device.platform == 'cpu',
                         address=shard.data.unsafe_buffer_pointer))
    return Tensor(dtype_name(array.dtype, 'a JAX array'), shape, _spec_text(array.sharding),
                  holdings, boxes)


def describe(leaf, where, rank_of_process=lambda process: process):
    """The Tensor of an array leaf."""
    if isinstance(leaf, Part):
        inner = describe(leaf.array, where)
        start, shape = tuple(map(int, leaf.start)), tuple(map(int, leaf.shape))
        if len(start) != len(shape) or len(inner.shape) != len(shape):
            raise ValueError(f'{where}: start {start}, shape {shape} and the part\'s shape '
                             f'{inner.shape} have different ranks')
        box = inner.boxes[0]
        if len(inner.boxes) != 1:
            raise TypeError(f'{where}: a Part holds an array of one piece')
        for begin, size, whole in zip(start, box.size, shape):
            if begin < 0 or begin + size > whole:
                raise ValueError(f'{where}: the box from {start} of size {box.size} is not in '
                                 f'{shape}')
        return Tensor(inner.dtype, shape, '', ASK,
                      [Box(start, box.size, box.fetch, box.is_mutable)])
    if _is_jax(leaf):
        if _is_key(leaf):
            leaf = sys.modules['jax'].random.key_data(leaf)
        if leaf.is_deleted():
            raise ValueError(f'{where} was donated or deleted: there is nothing to save')
        return _jax_tensor(leaf, rank_of_process)
    if _is_torch(leaf):
        shape = tuple(leaf.shape)
        return Tensor(_FROM_NUMPY[_torch_dtype(leaf, where)], shape, '', None,
                      [Box((0,) * len(shape), shape, lambda: _torch_array(leaf, where), True)])
    array, mutable = np.asarray(leaf), not isinstance(leaf, np.generic)
    return Tensor(dtype_name(array.dtype, where), tuple(array.shape), '', None,
                  [Box((0,) * array.ndim, tuple(array.shape), lambda: _dense(array), mutable)])


def kind_of(leaf):
    """What a restored leaf should become again: 'numpy', 'torch', 'jax', 'key:IMPL'."""
    if isinstance(leaf, Part):
        return kind_of(leaf.array)
    if _is_torch(leaf):
        return 'torch'
    if _is_jax(leaf):
        jax = sys.modules['jax']
        return f'key:{jax.random.key_impl(leaf)}' if _is_key(leaf) else 'jax'
    return 'numpy'


def torch_tensor(array):
    """A torch tensor over a NumPy array; what NumPy has no dtype for goes through its bits."""
    torch = sys.modules['torch']
    try:
        return torch.from_numpy(array)
    except TypeError:
        bits = np.dtype({1: 'uint8', 2: 'int16'}[array.dtype.itemsize])
        return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))
