"""Imports point down, services know nothing of each other, and the heart does no I/O."""

from importlinter.cli import lint_imports


def test_the_import_contracts_hold() -> None:
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0, "run lint-imports to see which"
