"""Fixtures of every test: real servers."""

pytest_plugins = ["tests.support.postgres"]
