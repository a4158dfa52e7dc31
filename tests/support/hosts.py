# SPDX-License-Identifier: Apache-2.0
"""Hosts for tests on one machine: network and PID namespaces, joined by a bridge.

Processes of one host see each other and share its addresses; those of another they reach over the
bridge alone, as from another machine. Each host has a name of its own, by which the others know it.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid


_UNSHARE = ('unshare', '--pid', '--uts', '--fork', '--kill-child', '--mount-proc')
_FIRST = 'hostname "$1" && mount --bind "$2" /etc/hosts && echo there && exec cat'


def why_not():
    """Why there can be none here, in words; empty where there can."""
    if os.geteuid() != 0:
        return 'making network namespaces needs root'
    for program in ('ip', 'unshare', 'nsenter'):
        if shutil.which(program, path=_path()) is None:
            return f'there is no program {program}'
    name = f'hekla-{uuid.uuid4().hex[:8]}'
    tried = _try('ip', 'netns', 'add', name)
    if tried.returncode != 0:
        return f'no network namespaces here: {tried.stderr.strip()}'
    # What processes of a host need, too: /proc of their own, an interface.
    both = _try('ip', 'netns', 'exec', name, *_UNSHARE, 'true')
    link = _try('ip', '-n', name, 'link', 'add', 'there', 'type', 'veth', 'peer', 'name', 'here')
    _try('ip', 'netns', 'del', name)
    for done in (both, link):
        if done.returncode != 0:
            return f'no namespaces of this kind here: {done.stderr.strip()}'
    return ''


def _path():
    return os.environ.get('PATH', '') + ':/usr/sbin:/sbin'


def _try(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, 'PATH': _path()})


def _run(*command):
    done = _try(*command)
    assert done.returncode == 0, f'{" ".join(command)}: {done.stderr}'


def _address(index):
    return f'10.211.0.{index + 1}'


class Host:
    def __init__(self, network, index, names):
        self.name = f'{network}-{index}'
        self.address = _address(index)
        _run('ip', 'netns', 'add', self.name)
        # Its first process: the others live as long as it does.
        self._first = subprocess.Popen(
            ['ip', 'netns', 'exec', self.name, *_UNSHARE, 'sh', '-c', _FIRST, 'sh', f'host{index}', names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, 'PATH': _path()})
        assert self._first.stdout.readline() == 'there\n'
        self._inside = pathlib.Path(f'/proc/{self._first.pid}/task/{self._first.pid}/children').read_text().split()[0]

    def start(self, command, **options):
        """subprocess.Popen of a command that runs there."""
        return subprocess.Popen(['nsenter', '--target', self._inside, '--net', '--pid', '--mount', '--uts', *command],
                                **options)

    def cut_off(self):
        _run('ip', '-n', self.name, 'link', 'set', 'net0', 'down')

    def close(self):
        self._first.stdin.close()
        self._first.kill()
        self._first.wait()
        self._first.stdout.close()
        _try('ip', 'netns', 'del', self.name)


class Hosts:
    """with Hosts(2) as hosts: hosts[0].start(...), hosts[0].address.

    `rate`, "1gbit": what each host's link carries each way, at most."""

    def __init__(self, count, rate=None):
        self._rate = rate
        self._network = f'hekla{uuid.uuid4().hex[:6]}'
        self._count = count
        self._all = []
        self._names = tempfile.NamedTemporaryFile('w', prefix='hosts')

    def __enter__(self):
        self._names.write('127.0.0.1 localhost\n')
        self._names.writelines(f'{_address(index)} host{index}\n' for index in range(self._count))
        self._names.flush()
        try:
            _run('ip', 'netns', 'add', self._network)
            switch = ['ip', '-n', self._network]
            _run(*switch, 'link', 'add', 'switch', 'type', 'bridge')
            _run(*switch, 'link', 'set', 'switch', 'up')
            for index in range(self._count):
                host = Host(self._network, index, self._names.name)
                self._all.append(host)
                _run(*switch, 'link', 'add', f'port{index}', 'type', 'veth', 'peer', 'name', 'net0', 'netns', host.name)
                _run(*switch, 'link', 'set', f'port{index}', 'master', 'switch', 'up')
                _run('ip', '-n', host.name, 'addr', 'add', f'{host.address}/24', 'dev', 'net0')
                _run('ip', '-n', host.name, 'link', 'set', 'net0', 'up')
                _run('ip', '-n', host.name, 'link', 'set', 'lo', 'up')
                for network, device in ((host.name, 'net0'), (self._network, f'port{index}')) if self._rate else ():
                    _run('tc', '-n', network, 'qdisc', 'add', 'dev', device, 'root', 'tbf', 'rate', self._rate,
                         'burst', '512kb', 'latency', '50ms')
        except BaseException:
            self.__exit__()
            raise
        return self._all

    def __exit__(self, *_):
        for host in self._all:
            host.close()
        self._names.close()
        _try('ip', 'netns', 'del', self._network)
