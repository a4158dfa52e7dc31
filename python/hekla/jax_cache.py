# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache (jax_compilation_cache_dir) for Hekla's platforms.

JAX asks a list of platform names of its own whether an executable may be kept. Ours can be: they
serialize, and the version of the platform, which is part of JAX's key, has the plugin's and the
device's.
"""
import types

_platforms = set()


def register(platform):
    """Lets executables of `platform` be kept."""
    from jax._src import compilation_cache
    if not _platforms:
        is_cache_used = compilation_cache.is_cache_used

        def with_ours(backend):
            if backend.platform in _platforms:
                backend = types.SimpleNamespace(platform='cpu')
            return is_cache_used(backend)

        compilation_cache.is_cache_used = with_ours
    _platforms.add(platform)
