# SPDX-License-Identifier: Apache-2.0
"""What PyTorch/XLA loads when it looks for plugins (entry-point group torch_xla.plugins).

torch_xla makes one object of each class below when it is imported, under the name that the entry point
has in upper case; PJRT_DEVICE=VULKAN, HEKLA_CPU or HEKLA_REFERENCE then chooses a device. CPU is
torch_xla's own device: that name never reaches a plugin. Making an object does nothing, so that
an installed package changes nothing for a program that uses another device; only the chosen one looks
for its library, and says where it looked when there is none.

torch_xla takes a plugin that is named by PJRT_DEVICE alone; importing hekla is not needed.
"""
import functools

from torch_xla.experimental import plugins

import hekla


def _open_autocast(platform):
    """Makes torch_xla.amp.autocast(device) what torch.autocast('xla') is on our platform.

    Without it the class prints that it takes TPUs alone and leaves itself unfinished: entering it ends in
    an AttributeError. Scripts hold the class by name, so that its constructor is replaced, not the class.
    """
    import torch
    import torch_xla.core.xla_model as xm
    from torch_xla.amp.autocast_mode import autocast
    theirs = autocast.__init__

    @functools.wraps(theirs)
    def init(self, device, enabled=True, dtype=None, cache_enabled=True):
        if 'xla' in str(device) and xm.xla_device_hw(device) == platform.upper():
            torch.autocast.__init__(self, 'xla', enabled=enabled, dtype=dtype or torch.bfloat16,
                                    cache_enabled=cache_enabled)
        else:
            theirs(self, device, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
    autocast.__init__ = init


class _Plugin(plugins.DevicePlugin):
    platform = ''  # as hekla.plugins() names it

    def library_path(self):
        # torch_xla asks once, when the chosen device is opened.
        _open_autocast(self.platform)
        return hekla.plugin_path(self.platform)


class Vulkan(_Plugin):
    """PJRT_DEVICE=VULKAN: the first Vulkan device."""
    platform = 'vulkan'


class Cpu(_Plugin):
    """PJRT_DEVICE=HEKLA_CPU: this machine's cores."""
    platform = 'tbb'


class Reference(_Plugin):
    """PJRT_DEVICE=HEKLA_REFERENCE: the evaluator, slow and right."""
    platform = 'reference'
