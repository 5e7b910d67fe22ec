"""The deployments under test: one with only a token configured, and one with everything configured."""

import pytest

import deployment


@pytest.fixture(scope='session')
def default(tmp_path_factory):
    with deployment.running(tmp_path_factory.mktemp('default'), deployment.DEFAULT) as running:
        yield running


@pytest.fixture(scope='session')
def full(tmp_path_factory):
    with deployment.running(tmp_path_factory.mktemp('full'), deployment.FULL) as running:
        yield running
