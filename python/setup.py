# SPDX-License-Identifier: Apache-2.0
"""Puts the built plugin libraries into the wheel; everything else stands in pyproject.toml.

They are taken from HEKLA_BUILD_DIR/lib/hekla (default: ../build). Without a build the package still
installs and finds its libraries through HEKLA_PLUGIN_PATH.
"""
import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', HERE.parent / 'build'))
LIBRARIES = sorted((BUILD / 'lib' / 'hekla').glob('*.so'))


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib) / 'hekla' / 'lib'
        for library in LIBRARIES:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)


class PlatformWheel(bdist_wheel):
    """The libraries depend on the system but on no version of Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not LIBRARIES

    def get_tag(self):
        python, abi, system = super().get_tag()
        return ('py3', 'none', system) if LIBRARIES else (python, abi, system)


setup(cmdclass={'build_py': BuildWithLibraries, 'bdist_wheel': PlatformWheel})
