"""The documents say what the code does."""

import re
from pathlib import Path

import pytest

from libs.domain.lifecycle import LIFECYCLES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_lifecycles_are_drawn_as_the_table_has_them() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    pictures = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", text, re.S)
    assert len(pictures) == len(LIFECYCLES)
    for (name, edges), picture in zip(LIFECYCLES.items(), pictures, strict=True):
        drawn = {tuple(line.split(" --> ")) for line in map(str.strip, picture.splitlines()) if line}
        table = {("[*]" if state == "absent" else state, t) for state, targets in edges.items() for t in targets}
        table |= {(state, "[*]") for state, targets in edges.items() if not targets}
        if name == "step":
            table.add(("[*]", "pending"))
        assert drawn == table, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
