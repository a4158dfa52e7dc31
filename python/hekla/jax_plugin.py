# SPDX-License-Identifier: Apache-2.0
"""What JAX calls when it looks for plugins (entry-point group jax_plugins).

initialize() registers each Hekla library that is there as a JAX platform of its name, below the
CPU, so that installing the package changes nobody's default device: a program asks for it by
JAX_PLATFORMS=reference,cpu or jax.devices('reference'). It never raises: JAX would drop the plugin
with no word to the user. Each private name of JAX is used in a step of its own, which is skipped
with one warning where a release lacks it; without any of them plain programs still run.
"""
import logging
import os

import hekla

logger = logging.getLogger('hekla')

# jaxlib releases the package is tested with; others get one line at level INFO.
TESTED_JAXLIB = ('0.8.3', '0.9.2', '0.10.2', '0.11.2')

# JAX's default device is the platform with the highest priority; its CPU has 0.
PRIORITIES = {'vulkan': -10, 'tbb': -20, 'reference': -30}
OTHER_PRIORITY = -40


def initialize():
    """Registers all libraries found. Called once by JAX's plugin discovery."""
    try:
        found = hekla.plugins()
    except Exception as error:  # a broken search path must not hide JAX's other platforms
        logger.warning('Hekla: no plugin is registered: %s', error)
        return
    if not found:
        logger.warning('Hekla: no plugin library found in %s; set HEKLA_PLUGIN_PATH',
                       ', '.join(str(p) for p in hekla.search_path()))
        return
    named = _named_by_environment()
    for name, path in found.items():
        if name in named:
            # JAX registers these itself, after the packages, and stops if one is there already.
            _add_services(name)
            _later(f'linear algebra on {name}', _add_linalg, name, named[name])
            _later(f'callbacks on {name}', _add_callbacks, name)
            _later(f'placements on {name}', _add_placements, name)
            _step(f'foreign functions on {name}', _add_ffi, name, named[name])
        elif _step(f'platform {name} from {path}', _register, name, path):
            _add_services(name)
            _step(f'linear algebra on {name}', _add_linalg, name, path)
            _step(f'callbacks on {name}', _add_callbacks, name)
            _step(f'placements on {name}', _add_placements, name)
            _step(f'foreign functions on {name}', _add_ffi, name, path)
    _step('version check', _check_version)


def _step(what, function, *args):
    try:
        function(*args)
        return True
    except Exception as error:
        logger.warning('Hekla: %s is not available in JAX: %s: %s', what, type(error).__name__,
                       error)
        return False


def _named_by_environment():
    """{platform: library} of PJRT_NAMES_AND_LIBRARY_PATHS (name:path,name:path)."""
    entries = os.environ.get('PJRT_NAMES_AND_LIBRARY_PATHS', '').split(',')
    pairs = (entry.split(':', 1) for entry in entries if ':' in entry)
    return {name.strip(): path.strip() for name, path in pairs}


def _register(name, path):
    from jax._src import xla_bridge
    if name not in getattr(xla_bridge, '_backend_factories', {}):
        xla_bridge.register_plugin(name, priority=PRIORITIES.get(name, OTHER_PRIORITY),
                                   library_path=path, options=_client_options)


def _client_options():
    """Options of a client that JAX itself does not give: where the processes of a run meet."""
    from jax._src import distributed
    address = getattr(distributed.global_state, 'coordinator_address', None)
    return {'coordinator_address': address} if address else {}


def _add_services(name):
    _step(f'donation on {name}', _allow_donation, name)
    _step(f'compilation cache on {name}', _add_cache, name)
    _step(f'DLPack on {name}', _add_dlpack, name)


def _add_cache(name):
    from hekla import jax_cache
    jax_cache.register(name)


def _add_dlpack(name):
    from hekla import jax_dlpack
    jax_dlpack.register(name)


def _allow_donation(name):
    # For platforms outside this list JAX drops donations and warns.
    from jax._src.interpreters import mlir
    if name not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(name)


def _add_linalg(name, path):
    if hekla.has_lapack(path):
        from hekla import jax_lapack
        jax_lapack.register(name)
    else:
        from hekla import jax_linalg
        jax_linalg.register(name)


def _add_callbacks(name):
    from hekla import jax_callbacks
    jax_callbacks.register(name)


def _add_placements(name):
    # By default a program's device_put to another kind of memory leaves no trace in it.
    from jax._src import dispatch
    from jax.interpreters import mlir
    mlir.register_lowering(dispatch.device_put_p, dispatch._tpu_gpu_device_put_lowering,
                           platform=name)


def _add_ffi(name, path):
    from hekla import jax_ffi
    jax_ffi.register(name, path)


def _later(what, function, *args):
    """A step for a platform that JAX registers itself: its rules can only be given once it is
    known; JAX calls back when all are."""
    def register():
        from jax._src import xla_bridge
        done = []

        def once(**_):
            if not done:
                done.append(_step(what, function, *args))
        xla_bridge.register_plugin_callbacks(once)
    _step(what, register)


def _check_version():
    import jaxlib
    version = jaxlib.version.__version__
    if version not in TESTED_JAXLIB:
        logger.info('Hekla %s is tested with jaxlib %s; this is %s', hekla.__version__,
                    ', '.join(TESTED_JAXLIB), version)
