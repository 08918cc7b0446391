"""Fixtures of every test: real servers."""

pytest_plugins = ["tests.support.postgres", "tests.support.nats"]
