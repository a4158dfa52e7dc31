# SPDX-License-Identifier: Apache-2.0
"""libhekla_checkpoint.so through ctypes (runtime/checkpoint/c_api/checkpoint_c.h)."""
import ctypes
import functools
import os
import pathlib

READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
                        ctypes.c_int64)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# StatusCode -> what Python says for it; the rest is RuntimeError.
_DATA_LOSS = 15


class CheckpointError(RuntimeError):
    """A save or restore failed; the message names step, phase, rank, file, offset and errno."""


class CorruptError(CheckpointError):
    """Something in a checkpoint is not what was written."""


_EXCEPTIONS = {1: InterruptedError, 3: ValueError, 4: TimeoutError, 5: FileNotFoundError,
               6: FileExistsError, 7: PermissionError, 8: MemoryError, _DATA_LOSS: CorruptError}


def _path():
    """Beside the plugins: HEKLA_CHECKPOINT_LIBRARY, the installed wheel, or the build tree."""
    chosen = os.environ.get('HEKLA_CHECKPOINT_LIBRARY')
    if chosen:
        return chosen
    package = pathlib.Path(__file__).resolve().parents[1]
    places = [prefix / 'lib' / 'hekla' for prefix in (package, package.parents[1])]
    for place in places:
        if (place / 'libhekla_checkpoint.so').exists():
            return str(place / 'libhekla_checkpoint.so')
    raise ImportError('libhekla_checkpoint.so is neither in ' + ' nor in '.join(map(str, places)) +
                      '; build Hekla, or name it in HEKLA_CHECKPOINT_LIBRARY')


@functools.cache
def library():
    lib = ctypes.CDLL(_path())
    p, i32, i64, text, real = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p,
                               ctypes.c_double)
    out = ctypes.POINTER(ctypes.c_void_p)
    calls = {
        'set_error': (None, text), 'free': (None, p),
        'state_create': (int, out), 'state_destroy': (None, p),
        'state_add_tensor': (int, p, text, text, i32, p, text, i32, i64, p),
        'state_add_box': (int, p, p, p, p, i64, i32, READ, RELEASE, p),
        'state_add_held_box': (int, p, p, p, ctypes.c_uint64, i64, p), 'holds': (int, i32, p),
        'state_add_bool': (int, p, text, i32), 'state_add_int': (int, p, text, i64),
        'state_add_double': (int, p, text, real), 'state_add_text': (int, p, text, p, i64),
        'state_add_bytes': (int, p, text, p, i64), 'state_add_file': (int, p, text, p, i64, i32),
        'step_open': (int, text, i64, text, out), 'step_destroy': (None, p),
        'step_info': (int, p, out), 'step_read': (int, p, i64, p, p, p, p),
        'step_read_file': (int, p, text, out, p), 'step_bytes_read': (i64, p),
        'manager_open': (int, text, text, i32, i32, text, out), 'manager_destroy': (None, p),
        'manager_should_save': (int, p, i64, p),
        'manager_save': (int, p, i64, p, text, out), 'manager_save_now': (int, p, i64, p, text),
        'manager_exchange': (int, p, text, out), 'manager_steps': (int, p, out), 'manager_pin': (int, p, i64, i32),
        'manager_reached_preemption': (int, p, i64, p),
        'manager_request_preemption': (None, p),
        'manager_save_for_preemption': (int, p, i64, p, p),
        'manager_wait': (int, p, real), 'manager_close': (int, p),
        'manager_restore': (int, p, i64, text, out), 'restored_destroy': (None, p),
        'restored_info': (int, p, out), 'restored_data': (int, p, i64, i64, out, p),
        'save_destroy': (None, p), 'save_progress': (None, p, p, p, p, p),
        'save_wait': (int, p, real, i32), 'save_error': (int, p),
    }
    for name, (result, *arguments) in calls.items():
        function = getattr(lib, f'hekla_checkpoint_{name}')
        function.restype = ctypes.c_int if result is int else result
        function.argtypes = arguments
    lib.hekla_checkpoint_error.restype = text
    lib.hekla_checkpoint_save_stage.restype = text
    lib.hekla_checkpoint_save_stage.argtypes = [p]
    return lib


def call(name, *arguments):
    """Calls hekla_checkpoint_NAME; its error becomes an exception."""
    lib = library()
    code = getattr(lib, f'hekla_checkpoint_{name}')(*arguments)
    if code:
        message = (lib.hekla_checkpoint_error() or b'').decode('utf-8', 'replace')
        raise _EXCEPTIONS.get(code, CheckpointError)(message)


def handle_of(name, *arguments):
    """A call whose last argument is the handle that comes out."""
    made = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(made))
    return made


def text_of(name, *arguments):
    """A call whose last argument is a text that comes out."""
    made = handle_of(name, *arguments)
    try:
        return ctypes.string_at(made).decode('utf-8')
    finally:
        library().hekla_checkpoint_free(made)


def hold(address):
    """What `address()`, a call of a PJRT client, says of a buffer of Hekla's: a hold of its values;
    None where no such plugin is loaded or the client does not say."""
    is_there = ctypes.c_int32()
    call('holds', True, ctypes.byref(is_there))
    try:
        return address() if is_there else None
    except Exception:  # the buffer cannot be addressed: it is fetched like any other
        return None
    finally:
        call('holds', False, ctypes.byref(is_there))


def int64s(numbers):
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
