# SPDX-License-Identifier: Apache-2.0
"""A share of torch's own list of operations; sweep.py runs all of it."""
import pytest
import sweep


@pytest.mark.any_platform
def test_operations_of_torch(pytestconfig):
    share = pytestconfig.getoption('--share')
    if not share:
        pytest.skip('takes minutes; run with --share N')
    rows = sweep.run(share)
    new, closed = sweep.judge(rows, share == 1)
    assert share > 64 or len(rows) > 60 and sum(row.passed for row in rows.values()) > 3 * len(rows) / 4
    assert not new and not closed
