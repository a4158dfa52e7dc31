# SPDX-License-Identifier: Apache-2.0
"""What the commands of tests/upstream share: others' tests fetched, run case by case, and known failures."""
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRESS_SECONDS = 15

# pattern: of ids, with *; devices: of ours, or None for all of them.
Known = collections.namedtuple('Known', 'pattern devices reason')


def read_known(text, name):
    """[Known] of lines "pattern [device,device]: reason"; the brackets may be left out. name: of the list."""
    entries = []
    for line in text.splitlines():
        if not line.strip() or line.startswith('#'):
            continue
        match = re.fullmatch(r'(\S+?)(?: \[([\w,]+)\])?: (.+)', line)
        if not match:
            raise SystemExit(f'{name}: no "pattern [devices]: reason" but "{line}"')
        entries.append(Known(match[1], tuple(match[2].split(',')) if match[2] else None, match[3]))
    return entries


def is_for(entry, device):
    return entry.devices is None or device in entry.devices


def explains(entry, case, device):
    return is_for(entry, device) and fnmatch.fnmatchcase(case, entry.pattern)


def stale(known, used, device, files):
    """Entries for this device and these files, all of whose cases ran, that explained nothing."""
    return [entry for entry in known if entry not in used and is_for(entry, device)
            and any(entry.pattern.split('::')[0] == f'{file}.py' for file in files)]


def clone(repository, tag, checkout, folders):
    """Some folders of a public repository at a tag."""
    print(f'cloning {repository} at {tag}', flush=True)
    checkout.parent.mkdir(parents=True, exist_ok=True)
    git = ['git', '-c', 'advice.detachedHead=false']
    cloned = subprocess.run(git + ['clone', '--quiet', '--depth', '1', '--branch', tag, '--sparse', repository,
                                   str(checkout)], check=False)
    if cloned.returncode:
        raise SystemExit(f'{repository} cannot be cloned at {tag}: name another with --repository, or an existing '
                         'checkout with --checkout')
    subprocess.run(git + ['-C', str(checkout), 'sparse-checkout', 'set', *folders], check=True)


def install(packages, requirements, *options):
    """What the tests import and the environment lacks, into a folder of its own; once."""
    if packages.is_dir():
        return
    print('installing what the tests import', flush=True)
    subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', *options, '--target', str(packages),
                    '-r', str(requirements)], check=True)


def build_with(plugin):
    """(build folder, path of the plugin's library in it), which must be there."""
    build = pathlib.Path(os.environ.get('HEKLA_BUILD_DIR', ROOT / 'build')).resolve()
    library = build / 'lib' / 'hekla' / f'pjrt_{plugin}.so'
    if not library.exists():
        raise SystemExit(f'no plugin library {library}: build it, or set HEKLA_BUILD_DIR')
    return build, library


def run_pytest(command, folder, values, out, name, count):
    """Runs pytest in a folder, its words into the file `out`. Each few seconds a line with `name` says how
    far it is: count() gives cases and failed ones."""
    began = time.monotonic()
    with open(out, 'w', encoding='utf-8') as stream:
        process = subprocess.Popen(command, cwd=folder, env=values, stdout=stream,
                                   stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                try:
                    process.wait(PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    cases, failed = count()
                    print(f'  {name}: {cases} cases, {failed} failed, '
                          f'{time.monotonic() - began:.0f} s', flush=True)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode not in (0, 1, 5):  # passed, failed, none selected
        print(f'{name}: pytest ended with status {process.returncode}, see {out}', flush=True)


def failures(cases):
    """(number of cases, of failed ones); cases: {id: [outcome, ...]}"""
    return len(cases), sum(case[0] == 'failed' for case in cases.values())


def write_json(path, content):
    """A reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix('.partial')
    partial.write_text(json.dumps(content, indent=0), encoding='utf-8')
    partial.replace(path)
