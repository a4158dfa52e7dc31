#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares plugin_api/xla_ffi.h with the header of XLA's foreign functions that jaxlib ships.

Prints every enumerator, size and offset that our header declares from a program that is compiled
against each of the two; the outputs must be equal. Exit status 77 where no jaxlib of our header's
minor version is installed.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / 'plugin_api' / 'xla_ffi.h'
PLACES = ('.venv/*/lib/python*/site-packages/jaxlib/include/xla/ffi/api/c_api.h',)
SKIPPED = 77


def minor(text):
    return re.search(r'#define XLA_FFI_API_MINOR (\d+)', text).group(1)


def facts(text):
    """Expressions whose values must agree, from our header."""
    text = re.sub(r'//[^\n]*', '', text)
    found = ['XLA_FFI_API_MAJOR', 'XLA_FFI_API_MINOR', *re.findall(r'\b(XLA_FFI_\w+) = \d+', text)]
    for name, body in re.findall(r'struct (XLA_FFI_\w+) \{(.*?)\n\}', text, re.S):
        found.append(f'sizeof({name})')
        for member in re.findall(r'(\w+)\)?(?:\([^;]*\))?;', body):
            found += [f'offsetof({name}, {member})', f'sizeof({name}::{member})']
    return found


def output(cxx, header, include, expressions, work):
    source = work / 'facts.cc'
    prints = '\n'.join(f'  std::printf("%s %lld\\n", "{e}", static_cast<long long>({e}));'
                       for e in expressions)
    source.write_text(f'#include <cstddef>\n#include <cstdio>\n#include "{header}"\n'
                      f'int main() {{\n{prints}\n}}\n')
    program = work / 'facts'
    subprocess.run([cxx, '-std=c++20', '-O0', '-Wno-invalid-offsetof', f'-I{include}', source, '-o',
                    program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split('\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--cxx', default='c++')
    cxx = parser.parse_args().cxx
    text = OURS.read_text()
    theirs = [path for place in PLACES for path in sorted(ROOT.glob(place))
              if minor(path.read_text()) == minor(text)]
    if not theirs:
        print(f'no jaxlib with foreign functions of minor version {minor(text)}')
        return SKIPPED
    expressions = facts(text)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        ours = output(cxx, 'plugin_api/xla_ffi.h', ROOT, expressions, work)
        expected = output(cxx, 'xla/ffi/api/c_api.h', theirs[-1].parents[3], expressions, work)
    wrong = [f'{a}; jaxlib: {b}' for a, b in zip(ours, expected) if a != b]
    print('\n'.join([*wrong, f'{len(expressions)} comparisons, {len(wrong)} differences']))
    return 1 if wrong or len(expressions) < 200 else 0


if __name__ == '__main__':
    sys.exit(main())
