# SPDX-License-Identifier: Apache-2.0
"""Where tests find programs of real senders: this folder, and others where somebody has them."""
import os
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
# So many there are at least, of each kind.
LEAST = {'*.mlirbc': 57, '*.mlir': 45}


def artifact_files(pattern):
    """Sorted files of this folder and, under other names, of $HEKLA_ARTIFACTS or ../shared/artifacts
    beside the checkout."""
    files = {path.name: path for path in FOLDER.glob(pattern)}
    if len(files) < LEAST[pattern]:
        raise FileNotFoundError(f'{FOLDER} has {len(files)} of {LEAST[pattern]} {pattern}')
    given = os.environ.get('HEKLA_ARTIFACTS')
    other = pathlib.Path(given) if given else FOLDER.parents[2] / 'shared' / 'artifacts'
    if given and not other.is_dir():
        raise FileNotFoundError(f'HEKLA_ARTIFACTS is {given}, which is no folder')
    for path in other.glob(pattern):
        files.setdefault(path.name, path)
    return sorted(files.values(), key=lambda path: path.name)
