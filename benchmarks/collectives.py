#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes of one host or of several: hekla::process_group beside Gloo and Open MPI.

    cmake --build build --target collectives_hekla collectives_gloo
    benchmarks/collectives.py [--ranks 2,4] [--operations all_reduce,...] [--rounds 3] [--json]
    benchmarks/collectives.py --hosts 2 [--rate 1gbit] --ranks 4,8

Each side is a C++ program on plain f32 arrays that loops over calls, so that no interpreter counts: Gloo of
Debian (libgloo-dev) over TCP on the loopback device, as torch uses it (it has no reduce_scatter: all ranks
reduce all of it, as torch's backend does), and MPI where mpicxx and mpirun are installed, or given as --mpicxx
and --mpirun. For each operation and number of ranks the sides run one after the other, and all of that `rounds`
times. Our ranks and MPI's have a core each where there are as many, as mpirun gives by itself; Gloo, which has
threads of its own, has all. A figure is the best call of all rounds, or with the word median the best of the rounds' medians. Bytes
are those of the whole array: of all_gather the output, of reduce_scatter the input. A ratio above 1: ours takes
less time.

With --hosts the ranks are spread in a row over so many hosts, namespaces of this machine
(tests/support/hosts.py; needs root) whose links carry --rate at most. Sides are then ours, ours where each rank
sends to each other ("direct"), and Gloo; last comes what a plain stream of bytes carries, one way and both ways.

On a machine that others use as well the best calls say what the code does, the medians what the others do.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'tests' / 'support'))

import hosts as host_namespaces  # noqa: E402
from processes import stream_rate  # noqa: E402

SIZES = [4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20]
OPERATIONS = ['all_reduce', 'all_gather', 'reduce_scatter', 'broadcast']


def build_mpi(compiler, folder):
    """The program, or None where MPI cannot be compiled against (mpicxx is there without libopenmpi-dev, too)."""
    program = folder / 'collectives_mpi'
    if not shutil.which(compiler.split()[0]):
        return None
    ran = subprocess.run([*compiler.split(), '-O2', '-std=c++20', f'-I{ROOT}', ROOT / 'benchmarks' / 'collectives_mpi.cc',
                          '-o', program], capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stderr.strip(), file=sys.stderr)
    return None if ran.returncode else program


def start_ranks(program, ranks, words, is_bound=False, hosts=None):
    """Rank 0's output."""
    cores = sorted(os.sched_getaffinity(0))

    def bind(rank):
        return (lambda: os.sched_setaffinity(0, {cores[rank]})) if is_bound and ranks <= len(cores) else None
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            start = hosts[rank * len(hosts) // ranks].start if hosts else subprocess.Popen
            processes.append(start([program, str(rank), str(ranks), folder, *words], text=True,
                                   preexec_fn=bind(rank), stdout=subprocess.PIPE if rank == 0 else None))
        output = processes[0].communicate()[0]
        if any([process.wait() for process in processes]):
            sys.exit(f'a rank of {program} failed')
    return output


def start_mpi(mpirun, program, ranks, words):
    environment = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    done = subprocess.run([*mpirun.split(), '--oversubscribe', '-n', str(ranks), program, '0', str(ranks), '-',
                           *words], env=environment, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f'mpirun: {done.stderr}')
    return done.stdout


def read(output, best):
    """Lines "bytes best median calls" into {bytes: [best, median]}."""
    for line in output.splitlines():
        size, least, median, _ = line.split()
        old = best.get(int(size), [float('inf')] * 2)
        best[int(size)] = [min(old[0], float(least)), min(old[1], float(median))]


def sides_on_hosts(arguments, programs, hosts):
    """Name of a side: a function of the number of ranks and the words that all sides get."""
    def side(name, *more):
        return lambda ranks, words: start_ranks(programs[name], ranks, [*words, *more], hosts=hosts)
    return {'hekla': side('hekla'), 'direct': side('hekla', 'ranks_per_host=0'),
            **{option: side('hekla', option) for option in arguments.beside},
            **({'gloo': side('gloo', 'net0')} if programs['gloo'].exists() else {})}


def sides_on_one_host(arguments, programs, folder):
    def hekla(*options):
        return lambda ranks, words: start_ranks(programs['hekla'], ranks, [*words, *options], is_bound=True)
    sides = {'hekla': hekla('shared_memory=on'), **{option: hekla(option) for option in arguments.beside}}
    if programs['gloo'].exists():
        sides['gloo'] = lambda ranks, words: start_ranks(programs['gloo'], ranks, words)
    mpi = build_mpi(arguments.mpicxx, folder) if shutil.which(arguments.mpirun.split()[0]) else None
    if mpi:
        sides['mpi'] = lambda ranks, words: start_mpi(arguments.mpirun, mpi, ranks, words)
    else:
        print('MPI is not measured: no mpirun, or mpicxx compiles nothing', file=sys.stderr)
    return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--ranks', default='2,4')
    parser.add_argument('--operations', default=','.join(OPERATIONS))
    parser.add_argument('--sizes', default=','.join(map(str, SIZES)))
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--hosts', type=int, default=0, help='several hosts, and how many')
    parser.add_argument('--rate', help="what a host's link carries, as tc has it: 1gbit")
    parser.add_argument('--build', type=pathlib.Path, default=ROOT / 'build')
    parser.add_argument('--beside', action='append', default=[], metavar='NAME=VALUE',
                        help='our own with an option of the group (collectives_hekla.cc) as another side: '
                        'shared_memory=off. May be given several times')
    parser.add_argument('--mpicxx', default='mpicxx')
    parser.add_argument('--mpirun', default='mpirun')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    programs = {side: arguments.build / 'benchmarks' / f'collectives_{side}' for side in ('hekla', 'gloo')}
    if not programs['hekla'].exists():
        sys.exit(f'{programs["hekla"]} is not built: see --help')
    if arguments.hosts and (why := host_namespaces.why_not()):
        sys.exit(f'--hosts: {why}')
    with contextlib.ExitStack() as stack:
        hosts = []
        if arguments.hosts:
            hosts = stack.enter_context(host_namespaces.Hosts(arguments.hosts, arguments.rate))
            sides = sides_on_hosts(arguments, programs, hosts)
        else:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sides = sides_on_one_host(arguments, programs, folder)
        rows = []
        for ranks in map(int, arguments.ranks.split(',')):
            for operation in arguments.operations.split(','):
                best = {side: {} for side in sides}
                for _ in range(arguments.rounds):
                    for side, start in sides.items():
                        read(start(ranks, [operation, arguments.sizes]), best[side])
                for size in map(int, arguments.sizes.split(',')):
                    # Arrays of no element for each rank are no call of Gloo's.
                    if size // 4 < ranks and operation in ('all_gather', 'reduce_scatter'):
                        continue
                    rows.append({'operation': operation, 'ranks': ranks, 'bytes': size,
                                 **{side: {'best_us': best[side][size][0], 'median_us': best[side][size][1]}
                                    for side in sides}})
        streams = {words: stream_rate(hosts, is_both) for words, is_both in (('one way', False), ('each way at once', True))
                   } if len(hosts) > 1 else {}
    if arguments.json:
        print(json.dumps({'rounds': arguments.rounds, 'rows': rows, 'streams_bytes_per_s': streams}, indent=1))
        return
    peers = [side for side in sides if side != 'hekla']
    table = None
    for row in rows:
        ours = row['hekla']
        if table != (row['operation'], row['ranks']):
            table = row['operation'], row['ranks']
            print(f'\n{row["operation"]}, {row["ranks"]} ranks: us, best (median); ratio by best (by median)')
        line = f'{row["bytes"]:>9}  hekla {ours["best_us"]:>9.2f} ({ours["median_us"]:>9.2f})'
        for peer in peers:
            theirs = row[peer]
            line += (f'  {peer} {theirs["best_us"]:>9.2f} ({theirs["median_us"]:>9.2f}) '
                     f'{theirs["best_us"] / ours["best_us"]:>6.2f} ({theirs["median_us"] / ours["median_us"]:.2f})')
        print(line)
    for words, rate in streams.items():
        print(f'a plain stream, {words}: {rate / 1e9:.3f} GB/s')


if __name__ == '__main__':
    main()
