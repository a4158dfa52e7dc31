# SPDX-License-Identifier: Apache-2.0
"""A committed step without a manager: what is in it, and parts of it."""
import ctypes
import json
import math
import os
import re
import weakref

import numpy as np

from . import _arrays, _manager, _native


def open_step(path, step=None, *, verify='touched'):
    """Opens a step for reading: `path` is its folder, or that of the run, of which the newest step is
    taken or the one named. `verify`: 'touched' (what is read), 'full' (all of it, now), 'none'."""
    return Step(path, step, verify=verify)


class Step:
    """A committed step, which is not deleted while this object lives or until close().

    Opening reads the commit record and the index alone. `step['model/w']` is a LazyTensor, whose
    values are read, and their digests compared, when they are asked for. Threads may share a Step.
    """

    def __init__(self, path, step=None, *, verify='touched'):
        path = os.path.abspath(os.fspath(path))
        match = re.fullmatch(r'step-(\d{12})', os.path.basename(path))
        if match and step is None:
            path, step = os.path.dirname(path), int(match[1])
        self._handle = _native.handle_of('step_open', os.fsencode(path),
                                         -1 if step is None else step, verify.encode())
        self._finalizer = weakref.finalize(
            self, _native.library().hekla_checkpoint_step_destroy, self._handle)
        info = json.loads(_native.text_of('step_info', self._handle))
        self.step, self.folder, self.reason = info['step'], info['folder'], info['reason']
        self.wall_time, self.world_size = info['wall_time'], info['world_size']
        self.metrics, self.files = info['metrics'], info['files']
        self._tensors = {tensor['name']: tensor for tensor in info['tensors']}
        items = _manager.parse_items(info['items'])
        self.values = {name: value for name, value in items.items()
                       if not _manager.is_own_item(name)}

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()

    def close(self):
        """Lets the step go; nothing can be read any more."""
        self._handle = None
        self._finalizer()

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __contains__(self, name):
        return name in self._tensors

    def __getitem__(self, name):
        return LazyTensor(self, **self._tensors[name])

    def names(self):
        """Of the tensors, ascending."""
        return list(self._tensors)

    def read(self, name, box=None):
        """A tensor as a NumPy array, or its box (start, size)."""
        return self.read_all({name: box})[name]

    def read_all(self, boxes, into=None):
        """{name: array} for {name: box or None}: what lies together is read together. `into` are
        arrays to read into, {name: contiguous array of the stored dtype and the box's size}."""
        names, numbers, arrays = [], [], {}
        for name, box in boxes.items():
            tensor = self[name]
            start, size = box if box is not None else ((0,) * len(tensor.shape), tensor.shape)
            if len(start) != len(tensor.shape) or len(size) != len(tensor.shape):
                raise ValueError(f'"{name}" has the shape {tensor.shape}; the box from {start} of '
                                 f'size {size} has other dimensions')
            for begin, length, whole in zip(start, size, tensor.shape):
                if begin < 0 or length < 0 or begin + length > whole:
                    raise ValueError(f'the box from {start} of size {size} is not in "{name}" of '
                                     f'the shape {tensor.shape}')
            names.append(name.encode())
            numbers += [*start, *size]
            arrays[name] = (into or {}).get(name)
            if arrays[name] is None:
                arrays[name] = np.empty(size, tensor.dtype)
            elif (arrays[name].shape != tuple(size) or arrays[name].dtype != tensor.dtype
                  or not arrays[name].flags.c_contiguous or not arrays[name].flags.writeable):
                raise ValueError(f'"{name}" cannot be read into an array of {arrays[name].dtype} '
                                 f'{arrays[name].shape}; a contiguous one of {tensor.dtype} '
                                 f'{tuple(size)} is needed')
        if names:
            _native.call('step_read', self._open(), len(names),
                         (ctypes.c_char_p * len(names))(*names), _native.int64s(numbers),
                         (ctypes.c_void_p * len(names))(*(a.ctypes.data for a in arrays.values())),
                         _native.int64s([a.nbytes for a in arrays.values()]))
        return arrays

    def read_file(self, name):
        """Bytes of a file that was given to the save; `files` are their names."""
        data, size = ctypes.c_void_p(), ctypes.c_int64()
        _native.call('step_read_file', self._open(), name.encode(), ctypes.byref(data),
                     ctypes.byref(size))
        try:
            return ctypes.string_at(data, size.value)
        finally:
            _native.library().hekla_checkpoint_free(data)

    @property
    def bytes_read(self):
        """Bytes asked of the file system so far."""
        return _native.library().hekla_checkpoint_step_bytes_read(self._open())

    def _open(self):
        if self._handle is None:
            raise ValueError(f'{self.folder} is closed')
        return self._handle

    def __repr__(self):
        return f'Step({self.folder!r}, {len(self)} tensors)'


class LazyTensor:
    """A tensor of a Step, which it keeps open. Indexing with integers, slices of step 1 and ...
    reads that part alone."""

    def __init__(self, step, name, dtype, shape, spec):
        self._step, self.name, self.spec = step, name, spec
        self.shape, self._dtype = tuple(shape), dtype

    @property
    def dtype(self):
        return _arrays.numpy_dtype(self._dtype)

    @property
    def stored_dtype(self):
        """StableHLO's name."""
        return self._dtype

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    def __len__(self):
        if not self.shape:
            raise TypeError(f'"{self.name}" has no dimensions')
        return self.shape[0]

    def read(self, box=None):
        """As a NumPy array, or its box (start, size)."""
        return self._step.read(self.name, box)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            filled = (slice(None),) * (len(self.shape) + 1 - len(index))
            index = index[:at] + filled + index[at + 1:]
        if len(index) > len(self.shape):
            raise IndexError(f'{len(index)} indices for "{self.name}" of the shape {self.shape}')
        index += (slice(None),) * (len(self.shape) - len(index))
        start, size, kept = [], [], []
        for part, length in zip(index, self.shape):
            if isinstance(part, slice):
                begin, end, stride = part.indices(length)
                if stride != 1:
                    raise IndexError(f'"{self.name}" is read in slices of step 1')
                kept.append(slice(None))
            else:
                begin = part.__index__()
                begin, end = (begin + length, begin + length + 1) if begin < 0 else (begin, begin + 1)
                if not 0 <= begin < length:
                    raise IndexError(f'{part} is not in a dimension of {length}')
                kept.append(0)
            start.append(begin)
            size.append(max(0, end - begin))
        return self.read((start, size))[tuple(kept)]

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError(f'"{self.name}" is on disk: reading it makes an array')
        array = self.read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self):
        return f'LazyTensor({self.name!r}, {self._dtype}, {self.shape})'
