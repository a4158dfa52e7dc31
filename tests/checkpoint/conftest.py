# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def pytest_addoption(parser):
    parser.addoption("--build", default=str(ROOT / "build"), help="build folder (default: build)")


@pytest.fixture(scope="session")
def build(request) -> pathlib.Path:
    return pathlib.Path(request.config.getoption("--build"))


def pytest_configure(config):
    # hekla.checkpoint as the build made it.
    sys.path.insert(0, str(pathlib.Path(config.getoption("--build")) / "python"))
