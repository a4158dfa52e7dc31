# SPDX-License-Identifier: Apache-2.0
"""Programs of the tests in Python processes of their own, one or a group of them."""
import os
import subprocess
import sys
import textwrap


def run_python(build, text, processes=1, environment=(), **arguments):
    """Runs a program in several processes of one group; [(exit code, output)]."""
    running = []
    for rank in range(processes):
        env = {**os.environ, 'PYTHONPATH': str(build / 'python'), 'JAX_PLATFORMS': 'cpu',
               **dict(environment)}
        if processes > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(processes))
        running.append(subprocess.Popen([sys.executable, '-c', textwrap.dedent(text)], env=env,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, **arguments))
    return [(p.returncode, out) for p, out in ((p, p.communicate(timeout=300)[0])
                                               for p in running)]
