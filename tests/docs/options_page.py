#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether docs/options.md has the options that plugins read, and names every HEKLA_ variable that is
read outside of tests; --update writes the tables anew.

Exit status: 0 as it should be, 1 the page differs or a variable is missing or is no longer read.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'options.md'
MARK = '<!-- printed by build/tests/print_options; tests/docs/options_page.py --update -->\n'
# In C++ and Python a variable's name stands in quotes where it is read.
READ = re.compile(r'''["'](HEKLA_[A-Z_]+)["']''')
TESTS = re.compile(r'(^|/)(tests?|testing|benchmarks|conformance)/|_test\.cc$|^tools/run_tests\.py$')


def variables_read():
    """Those that are read outside of tests, and those that are read anywhere."""
    names = subprocess.run(['git', 'ls-files', '*.cc', '*.h', '*.py'], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    found, anywhere = set(), set()
    for name in names:
        read = READ.findall((ROOT / name).read_text())
        anywhere.update(read)
        if not TESTS.search(name):
            found.update(read)
    return found, anywhere


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--printer', default=str(ROOT / 'build' / 'tests' / 'print_options'))
    parser.add_argument('--update', action='store_true', help='write the tables anew')
    arguments = parser.parse_args()
    tables = subprocess.run([arguments.printer], check=True, capture_output=True, text=True).stdout
    page = PAGE.read_text()
    wanted = page[:page.index(MARK)] + MARK + '\n' + tables.rstrip('\n') + '\n'
    if arguments.update:
        PAGE.write_text(wanted)
        page = wanted
    problems = [] if page == wanted else ['docs/options.md has other tables than plugins read: '
                                          'tests/docs/options_page.py --update']
    (read, anywhere), named = variables_read(), set(re.findall(r'`(HEKLA_[A-Z_]+)`', page))
    problems += [f'docs/options.md does not name {name}' for name in sorted(read - named)]
    problems += [f'nothing reads {name}, which docs/options.md names' for name in
                 sorted(named - anywhere)]
    print('\n'.join(problems) or f'{len(read)} variables and all options are named')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
