#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes empty stand-ins for shared libraries that torch is linked to and that are not there.

Usage: absent_libraries.py FOLDER     (site-packages/torch/lib)

torch from PyPI is linked to its GPU vendor's libraries, two gigabytes that no CPU needs, and the dynamic
loader refuses to load it without them. For each library that a file of FOLDER needs, that FOLDER
lacks and that is no part of the C and C++ runtime, this writes one with the same name, the same
symbol versions and the same symbols beside it, where it goes before one that the system may have in
another version. Every function answers NO_DEVICE, with which torch concludes that there is no such
device. Takes readelf and cc; files of an earlier call are written anew.
"""
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

MARK = 'hekla_stand_in'
NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
RUNTIME = re.compile(r'(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)|ld-linux.*)\.so\.\d+')


def readelf(option, library):
    return subprocess.run(['readelf', '--wide', option, library], check=True, capture_output=True,
                          text=True).stdout.splitlines()


class Library:
    """What one shared library has and needs, as the loader sees it."""

    def __init__(self, path):
        self.needed = [m[1] for line in readelf('--dynamic', path)
                       if (m := re.search(r'\(NEEDED\).*\[(.+)\]', line))]
        self.defined, self.wanted = set(), set()  # names; (name, version or '')
        for line in readelf('--dyn-syms', path):
            # Num: Value Size Type Bind Vis Ndx Name@VERSION (n)
            fields = line.split()
            if len(fields) < 8 or not fields[0].rstrip(':').isdigit():
                continue
            name, _, version = fields[7].partition('@')
            if fields[6] != 'UND':
                self.defined.add(name)
            elif fields[4] == 'GLOBAL':
                self.wanted.add((name, version.lstrip('@')))
        self.versions = {}  # version: name of the library that has it
        library = ''
        for line in readelf('--version-info', path):
            if m := re.search(r'File: (\S+)', line):
                library = m[1]
            elif library and (m := re.search(r'Name: (\S+)  Flags', line)):
                self.versions[m[1]] = library


def is_stand_in(path):
    return path.stat().st_size < 1 << 20 and MARK.encode() in path.read_bytes()


def write(path, versions):
    """versions: {version or '': names}. All names are other names of one function."""
    symbols, script, count = [], [], 0
    for version, names in sorted(versions.items()):
        for name in sorted(names):
            label = name
            if version:  # the same name may be there in two versions
                label = f'{MARK}_{count}'
                count += 1
            symbols += [f'.globl {label}', f'.type {label}, @function', f'.set {label}, {MARK}']
            if version:
                symbols.append(f'.symver {label}, {name}@@@{version}')
        if version:
            script.append(f'{version} {{}};')
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / 'stand_in.c'
        body = '\\n'.join(symbols)
        source.write_text(f'int {MARK}(void) {{ return {NO_DEVICE}; }}\n__asm__("{body}\\n");\n')
        command = ['cc', '-shared', '-fPIC', '-O1', '-nostdlib', '-o', path,
                   f'-Wl,-soname,{path.name}', source]
        if script:
            map_file = pathlib.Path(folder) / 'versions'
            map_file.write_text('\n'.join(script) + '\n')
            command.append(f'-Wl,--version-script={map_file}')
        subprocess.run(command, check=True)


def main(folder):
    folder = pathlib.Path(folder)
    for path in folder.glob('*.so*'):
        if is_stand_in(path):
            path.unlink()
    libraries = [Library(path) for path in sorted(folder.glob('*.so*'))]
    there = {path.name for path in folder.glob('*.so*')}
    needed = {name for library in libraries for name in library.needed} - there
    runtime = [ctypes.CDLL(name) for name in needed if RUNTIME.fullmatch(name)]
    absent = sorted(name for name in needed if not RUNTIME.fullmatch(name))
    defined = set().union(*(library.defined for library in libraries))
    # Names without a version that nobody has: which library would have them is not written
    # anywhere, so that each has all. The interpreter has its own.
    plain = {name for library in libraries for name, version in library.wanted
             if not version and name not in defined and not re.match('_?Py', name) and
             not any(hasattr(library, name) for library in runtime)}
    for name in absent:
        versions = {'': plain}
        for library in libraries:
            for symbol, version in library.wanted:
                if version and library.versions.get(version) == name:
                    versions.setdefault(version, set()).add(symbol)
        write(folder / name, versions)
    print(f'{len(absent)} stand-ins in {folder}')


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
