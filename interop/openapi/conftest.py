"""The deployments that are looked at: one with nothing configured but a token, and one with everything."""

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
