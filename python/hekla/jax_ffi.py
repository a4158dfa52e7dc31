# SPDX-License-Identifier: Apache-2.0
"""jax.ffi on a Hekla platform: functions of the user's for custom calls.

JAX keeps what jax.ffi.register_ffi_target and register_ffi_type are given for a platform until
somebody registers a function that takes it. Ours hands it to the plugin, through two extensions of
its C API table: FFI, which takes types, and the one that began as that of GPUs' custom calls, which
takes handlers of all stages and untyped functions. plugin_api/pjrt_extensions.h has the structs.
"""
import ctypes
import functools
import logging

logger = logging.getLogger('hekla')

_CUSTOM_CALL, _FFI = 0, 5  # types of extensions
STAGES = ('instantiate', 'prepare', 'initialize', 'execute')


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [('struct_size', ctypes.c_size_t), ('type', ctypes.c_int),
                       ('next', ctypes.POINTER(_Extension))]


class _Api(ctypes.Structure):
    # The first members of the table; the third is a struct, the slots behind it begin with those of
    # errors.
    _fields_ = [('struct_size', ctypes.c_size_t), ('extensions', ctypes.POINTER(_Extension)),
                ('version', ctypes.c_byte * 24), ('error_destroy', ctypes.c_void_p),
                ('error_message', ctypes.c_void_p), ('error_code', ctypes.c_void_p)]


class _ErrorArgs(ctypes.Structure):
    _fields_ = [('struct_size', ctypes.c_size_t), ('extension_start', ctypes.c_void_p),
                ('error', ctypes.c_void_p), ('message', ctypes.c_void_p),
                ('message_size', ctypes.c_size_t)]


class _RegisterArgs(ctypes.Structure):
    _fields_ = [('struct_size', ctypes.c_size_t), ('name', ctypes.c_char_p),
                ('name_size', ctypes.c_size_t), ('api_version', ctypes.c_int),
                *((stage, ctypes.c_void_p) for stage in STAGES), ('traits', ctypes.c_uint32)]


class _TypeInfo(ctypes.Structure):
    _fields_ = [('deleter', ctypes.c_void_p), ('serialize', ctypes.c_void_p),
                ('deserialize', ctypes.c_void_p)]


class _TypeArgs(ctypes.Structure):
    _fields_ = [('struct_size', ctypes.c_size_t), ('extension_start', ctypes.c_void_p),
                ('name', ctypes.c_char_p), ('name_size', ctypes.c_size_t),
                ('type_id', ctypes.c_int64), ('type_info', ctypes.POINTER(_TypeInfo))]


class _UserTypeInfo(ctypes.Structure):
    """XLA_FFI_TypeInfo, what users' capsules point to."""
    _fields_ = [('struct_size', ctypes.c_size_t), ('extension_start', ctypes.c_void_p),
                ('deleter', ctypes.c_void_p)]


def register(platform, path):
    """Takes the functions and types for `platform`, whose plugin is the library at `path`. Of those
    that were registered before, what is wrong is a warning: here nobody waits for it. Raises where
    this JAX has no such registry."""
    from jaxlib import xla_client
    plugin = _Plugin(path)
    is_waited_for = False

    def taking(function):
        def take(name, *args):
            try:
                function(plugin, name, *args)
            except Exception as error:
                if is_waited_for:
                    raise
                logger.warning('Hekla: %s is not registered for %s: %s', name, platform, error)
        return take
    # A handler's metadata names the type of its state.
    xla_client.register_custom_type_handler(platform, taking(_register_type))
    xla_client.register_custom_call_handler(platform, taking(_register_target))
    is_waited_for = True


class _Plugin:
    """The library's extensions, found when they are first used: JAX loads a platform's library only
    when a program asks for it."""

    def __init__(self, path):
        self.path = path

    @functools.cached_property
    def api(self):
        get = ctypes.CDLL(self.path).GetPjrtApi
        get.restype = ctypes.POINTER(_Api)
        return get().contents

    def member(self, kind, index):
        """The function number `index` of the extension of a kind."""
        node = self.api.extensions
        while node:
            if node.contents.type == kind:
                first = ctypes.addressof(node.contents) + ctypes.sizeof(_Extension)
                address = ctypes.cast(first, ctypes.POINTER(ctypes.c_void_p))[index]
                return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            node = node.contents.next
        raise RuntimeError(f'{self.path} has no extension {kind} for foreign functions')

    def call(self, function, args):
        error = function(ctypes.addressof(args))
        if not error:
            return
        text = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, error, None, 0)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        run(self.api.error_message)(ctypes.addressof(text))
        message = ctypes.string_at(text.message, text.message_size).decode()
        # The arguments of Destroy are the first three members.
        text.struct_size = _ErrorArgs.message.offset
        run(self.api.error_destroy)(ctypes.addressof(text))
        raise RuntimeError(message)


def _address(capsule):
    """What a PyCapsule points to, whatever its name; null for None."""
    if capsule is None:
        return None
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(capsule, name(capsule))


def _register_target(plugin, name, fn, platform, api_version=0, traits=0):
    del platform  # the plugin has one
    if isinstance(name, str):
        name = name.encode()
    stages = fn if isinstance(fn, dict) else {'execute': fn}
    unknown = sorted(set(stages) - set(STAGES))
    if unknown:
        raise ValueError(f'custom call target {name.decode()}: no stage {", ".join(unknown)}; the stages '
                         f'are {", ".join(STAGES)}')
    addresses = [_address(stages.get(stage)) for stage in STAGES]
    args = _RegisterArgs(_RegisterArgs.traits.offset + 4, name, len(name), api_version, *addresses,
                         int(traits))
    plugin.call(plugin.member(_CUSTOM_CALL, 0), args)


def _register_type(plugin, name, registration):
    if not isinstance(registration, dict):
        registration = {'type_id': registration}
    type_id = ctypes.cast(_address(registration['type_id']), ctypes.POINTER(ctypes.c_int64))
    address = _address(registration.get('type_info'))
    info = _TypeInfo()
    if address is not None:
        info.deleter = _UserTypeInfo.from_address(address).deleter
    if isinstance(name, str):
        name = name.encode()
    args = _TypeArgs(ctypes.sizeof(_TypeArgs), None, name, len(name), type_id[0], ctypes.pointer(info))
    plugin.call(plugin.member(_FFI, 0), args)
    type_id[0] = args.type_id
