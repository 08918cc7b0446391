"""One running product for all scenarios of a test process; each works on runs of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import DEFINITIONS, Dev

OWN = Path(__file__).parent / "own"


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A `minutebook dev` whose folder is `.minutebook` in a folder of its own, as the command line looks for it.

    Its scripted model knows the shipped definitions and those in `own`, which nobody has synced yet: scripts are read
    at the start only.
    """
    home = tmp_path_factory.mktemp("home")
    definitions = home / "definitions"
    shutil.copytree(DEFINITIONS, definitions)
    for script in OWN.glob("workflows/*/demo"):
        shutil.copytree(script, definitions / script.relative_to(OWN))
    with Dev.start(home / ".minutebook", "--definitions", definitions) as dev:
        yield dev
