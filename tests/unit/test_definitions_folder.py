"""Reading a folder of definitions, and what the command that checks it says."""

import json
from pathlib import Path

import pytest
import typer

from minutebook.cli.session import Exit
from minutebook.folder import FILE_BYTES_MAX, FolderError, read_folder
from services.dev.validation import check_folder

WORKFLOW = "workflow:\n  id: w\n  name: W\n  stages: [{ key: s, steps: [{ key: g, kind: gate, gate: context.a }] }]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "definitions/workflows/w/workflow.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(WORKFLOW)
    return tmp_path / "definitions"


def test_what_is_read_and_what_is_left_out(folder: Path) -> None:
    for name in ("workflows/w/prompts/p.md", "workflows/w/demo/model.json", ".git/x.yaml", "notes.txt", "mcp/x.yml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert set(read_folder(folder)) == {"workflows/w/workflow.yaml", "workflows/w/prompts/p.md", "mcp/x.yml"}


def test_links_inside_are_followed_and_links_out_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "sources.yaml").symlink_to(folder / "workflows/w/workflow.yaml")
    assert read_folder(folder)["sources.yaml"] == WORKFLOW
    secret = tmp_path / "secret.yaml"
    secret.write_text("password: x")
    (folder / "mcp").mkdir()
    (folder / "mcp/x.yaml").symlink_to(secret)
    with pytest.raises(FolderError, match=r"mcp/x\.yaml is a link that leads out"):
        read_folder(folder)


def test_a_linked_folder_is_told_instead_of_left_out(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (folder / "workflows/linked").symlink_to(other)
    with pytest.raises(FolderError, match="workflows/linked is a linked folder"):
        read_folder(folder)


@pytest.mark.parametrize(
    "content, told",
    [(b"x" * (FILE_BYTES_MAX + 1), "at most 262144 are read"), (b"name: \xff", "is not UTF-8 at byte 6")],
)
def test_a_file_that_cannot_be_read(folder: Path, content: bytes, told: str) -> None:
    (folder / "sources.yaml").write_bytes(content)
    with pytest.raises(FolderError) as refused:
        read_folder(folder)
    assert (refused.value.file, told in str(refused.value)) == ("sources.yaml", True)


def test_a_sound_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_folder(folder, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": []}
    check_folder(folder, as_json=False)
    assert capsys.readouterr().out.startswith("workflow w: ")


def test_problems_are_told_and_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "workflows/w/workflow.yaml").write_text(WORKFLOW.replace("name: W", "nmae: W"))
    with pytest.raises(typer.Exit) as ended:
        check_folder(folder, as_json=True)
    assert (ended.value.exit_code, Exit.REFUSED.value) == (1, 1)
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert problem == {
        "file": "workflows/w/workflow.yaml",
        "line": 3,
        "path": "nmae",
        "message": "unknown key; did you mean `name`?",
    }
    with pytest.raises(typer.Exit):
        check_folder(folder, as_json=False)
    assert capsys.readouterr().out == "workflows/w/workflow.yaml:3: nmae: unknown key; did you mean `name`?\n"


def test_a_file_that_cannot_be_read_is_a_problem_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sources.yaml").write_bytes(b"\xff")
    with pytest.raises(typer.Exit) as ended:
        check_folder(folder, as_json=True)
    assert ended.value.exit_code == Exit.REFUSED
    assert [item["file"] for item in json.loads(capsys.readouterr().out)["problems"]] == ["sources.yaml"]


def test_an_empty_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_folder(tmp_path, as_json=False)
    assert "declares nothing" in capsys.readouterr().out


def test_no_folder_is_a_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(typer.Exit) as ended:
        check_folder(tmp_path / "gone", as_json=True)
    assert ended.value.exit_code == Exit.USAGE
