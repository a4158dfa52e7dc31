# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that picks cases of somebody else's suite and writes a line of JSON per case.

Loaded with `-p case_log`; what it does is said by variables, since workers of xdist inherit them:
  CASE_LOG          file that gets {"id", "when", "outcome", "seconds", "message"} per report
  CASE_SHARE        "N:seed": one of N cases, by the checksum of its id
  CASE_SKIP_IDS     file of ids, one a line, that are not run
  CASE_ONLY_IDS     file of ids, one a line, that alone are run
  CASE_TIMEOUT      seconds after which a case ends its process; xdist starts another
  CASE_JAX_DUT      what JAX's test_util shall take the device for
  CASE_JAX_SOURCE   folder jax/_src of its repository, for modules of its tests that the wheel lacks
An id is pytest's node id.
"""
import faulthandler
import json
import os
import pathlib
import zlib

import pytest

MESSAGE_LIMIT = 3000


def is_taken(case, share):
    """Whether a case is in a share "N:seed"."""
    count, seed = map(int, share.split(':'))
    return zlib.crc32(case.encode()) % count == seed % count


def _ids(variable):
    path = os.environ.get(variable)
    return set(pathlib.Path(path).read_text(encoding='utf-8').split('\n')) if path else None


def _message(report):
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, 'reprcrash', None)
    return crash.message if crash else str(report.longrepr or '')


def pytest_configure(config):
    device = os.environ.get('CASE_JAX_DUT')
    if device:
        import jax
        from jax._src import test_util  # noqa: F401  defines the option
        jax.config.update('jax_test_dut', device)
    source = os.environ.get('CASE_JAX_SOURCE')
    if source:
        import jax._src.pallas
        # Behind the installed files, which win.
        jax._src.__path__.append(source)
        jax._src.pallas.__path__.append(os.path.join(source, 'pallas'))
    config.pluginmanager.register(_Selection(), 'case_log_selection')
    if not hasattr(config, 'workerinput'):
        config.pluginmanager.register(_Log(os.environ['CASE_LOG']), 'case_log_reports')


class _Selection:
    def __init__(self):
        self.timeout = float(os.environ.get('CASE_TIMEOUT', '0'))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        share = os.environ.get('CASE_SHARE', '1:0')
        skipped = _ids('CASE_SKIP_IDS') or ()
        only = _ids('CASE_ONLY_IDS')

        def taken(case):
            return (is_taken(case, share) and case not in skipped
                    and (only is None or case in only))
        left_out = [item for item in items if not taken(item.nodeid)]
        items[:] = [item for item in items if taken(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        del item, nextitem
        if self.timeout:
            faulthandler.dump_traceback_later(self.timeout, exit=True)
        try:
            return (yield)
        finally:
            if self.timeout:
                faulthandler.cancel_dump_traceback_later()


class _Log:
    """Writes what the reports say; in the process that the workers report to."""

    def __init__(self, path):
        self.file = open(path, 'a', encoding='utf-8')

    def write(self, case, when, outcome, seconds, message):
        line = {'id': case, 'when': when, 'outcome': outcome, 'seconds': round(seconds, 3),
                'message': message[:MESSAGE_LIMIT]}
        self.file.write(json.dumps(line) + '\n')
        self.file.flush()

    def pytest_runtest_logreport(self, report):
        if report.when == 'call' or report.outcome != 'passed':
            self.write(report.nodeid, report.when, report.outcome, report.duration,
                       _message(report))

    def pytest_collectreport(self, report):
        if report.outcome == 'failed':
            self.write(report.nodeid, 'collect', 'failed', 0, _message(report))
