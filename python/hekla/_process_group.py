# SPDX-License-Identifier: Apache-2.0
"""libhekla_process_group.so through ctypes (runtime/process_group/c_api/process_group_c.h).

Calls into the library give up Python's lock. Its threads call Python only for works that `then` was
called on and, while a group is made, for its store.
"""
import atexit
import ctypes
import functools
import itertools
import os
import pathlib

VERSION = 3
CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, UNKNOWN = 1, 3, 4, 5, 6, 2


class GroupError(Exception):
    """What the library says: its message, and the number of a StatusCode in `code`."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Array(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('count', ctypes.c_int64), ('dtype', ctypes.c_int32)]


class Parameter(ctypes.Structure):
    _fields_ = [('name', ctypes.c_char_p), ('count', ctypes.c_int64), ('dtype', ctypes.c_int32)]


class BucketOptions(ctypes.Structure):
    _fields_ = [('first_bytes', ctypes.c_int64), ('other_bytes', ctypes.c_int64), ('factor', ctypes.c_double),
                ('timeout_ms', ctypes.c_int64), ('op', ctypes.c_int32), ('missing_is_zero', ctypes.c_int32),
                ('is_sharded', ctypes.c_int32), ('state_count', ctypes.c_int32),
                ('states', ctypes.POINTER(ctypes.c_int32))]


class Shard(ctypes.Structure):
    _fields_ = [('step', ctypes.c_int64), ('parameters', Array), ('gradients', Array),
                ('states', ctypes.POINTER(Array)), ('state_count', ctypes.c_int32)]


UPDATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Shard))
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p)
_PUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class _Store(ctypes.Structure):
    _fields_ = [('context', ctypes.c_void_p), ('get', _GET), ('put', _PUT), ('release', _RELEASE)]


def _path():
    """Beside the plugins: HEKLA_PROCESS_GROUP_LIBRARY, the installed wheel, or the build tree."""
    chosen = os.environ.get('HEKLA_PROCESS_GROUP_LIBRARY')
    if chosen:
        return chosen
    package = pathlib.Path(__file__).resolve().parent
    places = [prefix / 'lib' / 'hekla' for prefix in (package, package.parents[1])]
    for place in places:
        if (place / 'libhekla_process_group.so').exists():
            return str(place / 'libhekla_process_group.so')
    raise ImportError('libhekla_process_group.so is neither in ' + ' nor in '.join(map(str, places)) +
                      '; build Hekla, or name it in HEKLA_PROCESS_GROUP_LIBRARY')


@functools.cache
def library():
    lib = ctypes.CDLL(_path())
    p, i32, i64, u64, text, real = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64,
                                    ctypes.c_char_p, ctypes.c_double)
    out, array = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Array)
    calls = {
        'version': (i32,), 'error': (text,), 'set_error': (None, text), 'dtype': (i32, text),
        'reduce_op': (i32, text), 'value_set': (None, p, text, i64),
        'create': (int, ctypes.POINTER(_Store), i32, i32, text, text, i64, out),
        'subgroup': (int, p, text, ctypes.POINTER(i32), i32, i64, out),
        'destroy': (None, p), 'close': (None, p), 'abort': (int, p, text), 'refuse': (int, p, text, text), 'status': (int, p),
        'sequence': (int, p, ctypes.POINTER(i64)),
        'broadcast': (int, p, array, i32, i64, u64, out),
        'all_reduce': (int, p, array, array, i32, real, i64, u64, out),
        'reduce': (int, p, array, i32, i32, real, i64, u64, out),
        'all_gather': (int, p, array, array, i64, u64, out),
        'gather': (int, p, array, array, i32, i64, u64, out),
        'scatter': (int, p, array, array, i32, i64, u64, out),
        'reduce_scatter': (int, p, array, array, i32, real, i64, u64, out),
        'all_to_all': (int, p, array, array, p, p, i64, u64, out),
        'barrier': (int, p, i64, out), 'monitored_barrier': (int, p, i64),
        'send': (int, p, array, i32, u64, i64, u64, out),
        'receive': (int, p, array, i32, u64, i64, u64, out),
        'work_destroy': (None, p), 'work_wait': (int, p, i64), 'work_test': (i32, p),
        'work_source': (i32, p), 'work_then': (int, p, _DONE, p),
        'coalesce_begin': (int, p), 'coalesce_end': (int, p, i64, out),
        'init': (int, text, text, text, i64, out), 'rank': (i32, p), 'size': (i32, p),
        'buckets_create': (int, p, ctypes.POINTER(Parameter), i32, ctypes.POINTER(BucketOptions), out),
        'buckets_destroy': (None, p), 'buckets_gradient': (int, p, i32, array), 'buckets_parameter': (int, p, i32, array),
        'buckets_ready': (int, p, i32), 'buckets_finish': (int, p), 'buckets_step': (int, p, UPDATE, p),
        'buckets_broadcast_parameters': (int, p, i32), 'buckets_gather_state': (int, p, i32, array),
        'buckets_set_state': (int, p, i32, array), 'buckets_steps': (i64, p), 'buckets_set_steps': (None, p, i64),
        'buckets_state_bytes': (i64, p), 'buckets_count': (i64, p),
        'finished': (i64, ctypes.POINTER(u64), i64),
    }
    for name, (result, *arguments) in calls.items():
        function = getattr(lib, f'hekla_group_{name}')
        function.restype = ctypes.c_int if result is int else result
        function.argtypes = arguments
    if lib.hekla_group_version() != VERSION:
        raise ImportError(f'{_path()} has version {lib.hekla_group_version()}, not {VERSION}')
    return lib


def _error(lib, code):
    return GroupError(code, (lib.hekla_group_error() or b'').decode('utf-8', 'replace'))


def call(name, *arguments):
    """Calls hekla_group_NAME, which returns a code; GroupError."""
    lib = library()
    code = getattr(lib, f'hekla_group_{name}')(*arguments)
    if code:
        raise _error(lib, code)


# What the library's threads call; its contexts are numbers of these dictionaries.
_numbers = itertools.count(1)
_stores = {}
_waiting = {}


def _answer(context, work):
    """The code of what `work` makes of the store."""
    lib = library()
    try:
        code, message = work(_stores[context])
    except Exception as error:  # pylint: disable=broad-except  # crosses C as a message
        code, message = UNKNOWN, f'{type(error).__name__}: {error}'
    if code:
        lib.hekla_group_set_error(message.encode())
    return code


@_GET
def _get(context, key, timeout_ms, value):
    def fetch(store):
        found = store.get(key.decode(), timeout_ms / 1000)
        if found is None:
            return (NOT_FOUND, 'no value') if timeout_ms == 0 else (DEADLINE_EXCEEDED, f'no value in {timeout_ms} ms')
        library().hekla_group_value_set(value, found, len(found))
        return 0, ''
    return _answer(context, fetch)


@_PUT
def _put(context, key, value, count):
    def put(store):
        if store.put(key.decode(), ctypes.string_at(value, count)):
            return 0, ''
        return ALREADY_EXISTS, 'there is a value already'
    return _answer(context, put)


@_RELEASE
def _release(context):
    _stores.pop(context, None)


@_DONE
def _done(context, code, message):
    callback = _waiting.pop(context)
    callback(None if code == 0 else GroupError(code, message.decode('utf-8', 'replace')))


class Group:
    """A hekla_group. `store` has get(key, seconds) -> bytes or None and put(key, bytes) -> bool."""

    def __init__(self, store, rank, size, name, engine, timeout_ms):
        number = next(_numbers)
        _stores[number] = store
        made = ctypes.c_void_p()
        call('create', _Store(number, _get, _put, _release), rank, size, name.encode(),
             engine.encode(), timeout_ms, ctypes.byref(made))
        self.handle = made
        _open_groups.add(self)

    @classmethod
    def init(cls, method, name, engine, timeout_ms):
        """Of all processes of a run."""
        group = cls.__new__(cls)
        group.handle = ctypes.c_void_p()
        call('init', method.encode(), name.encode(), engine.encode(), timeout_ms, ctypes.byref(group.handle))
        _open_groups.add(group)
        return group

    @classmethod
    def of(cls, parent, ranks, name, timeout_ms):
        """Of some of a Group's ranks, in that order, over its connections; those alone call."""
        group = cls.__new__(cls)
        group.handle = ctypes.c_void_p()
        call('subgroup', parent.handle, name.encode(), (ctypes.c_int32 * len(ranks))(*ranks), len(ranks),
             timeout_ms, ctypes.byref(group.handle))
        _open_groups.add(group)
        return group

    def start(self, name, *arguments, keeps=None):
        """The Work of hekla_group_NAME(group, *arguments, keep); `keeps` is memory that its arrays
        are in, which stays until nobody looks at it."""
        lib = library()
        made = ctypes.c_void_p()
        if keeps is None:
            code = getattr(lib, f'hekla_group_{name}')(self.handle, *arguments, ctypes.byref(made))
        else:
            _forget_finished(lib)
            number = next(_numbers)
            _kept[number] = keeps
            try:
                code = getattr(lib, f'hekla_group_{name}')(self.handle, *arguments, number, ctypes.byref(made))
            except (ctypes.ArgumentError, TypeError):
                del _kept[number]     # the library was not called: it never lists the number
                raise
        if code:
            raise _error(lib, code)
        return Work(lib, made)

    def coalesce_begin(self):
        call('coalesce_begin', self.handle)

    def coalesce_end(self, timeout_ms=-1):
        """The Work of the collectives of this thread since coalesce_begin, which go now."""
        made = ctypes.c_void_p()
        call('coalesce_end', self.handle, timeout_ms, ctypes.byref(made))
        return Work(library(), made)

    def refuse(self, call, reason):
        """Tells the others of a collective that this rank does not make."""
        library().hekla_group_refuse(self.handle, call.encode(), reason.encode())

    def close(self):
        library().hekla_group_close(self.handle)
        _open_groups.discard(self)


class Work:
    """A hekla_group_work."""

    __slots__ = ('_lib', '_handle')

    def __init__(self, lib, handle):
        self._lib, self._handle = lib, handle

    def __del__(self):
        self._lib.hekla_group_work_destroy(self._handle)

    def wait(self, timeout_ms=-1):
        code = self._lib.hekla_group_work_wait(self._handle, timeout_ms)
        if code:
            raise _error(self._lib, code)
        _forget_finished(self._lib)

    def test(self):
        return self._lib.hekla_group_work_test(self._handle) != 0

    def source(self):
        return self._lib.hekla_group_work_source(self._handle)

    def then(self, callback):
        """callback(None, or a GroupError) once it is done, from any thread."""
        number = next(_numbers)
        _waiting[number] = callback
        call('work_then', self._handle, _done, number)


_kept = {}
_open_groups = set()


def _forget_finished(lib, room=64):
    while _kept:
        numbers = (ctypes.c_uint64 * room)()
        count = lib.hekla_group_finished(numbers, room)
        for number in numbers[:count]:
            _kept.pop(number, None)
        if count < room:
            return


@atexit.register
def _close_all():
    """Before Python ends: threads of groups must not call into what is gone."""
    for group in list(_open_groups):
        group.close()
