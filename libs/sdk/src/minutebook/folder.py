"""Reads a `definitions/` folder into the mapping that the API takes."""

from pathlib import Path

SUFFIXES = frozenset({".yaml", ".md", ".json"})
FILES_MAX = 2_000
FILE_BYTES_MAX = 256 * 1024


class FolderError(Exception):
    """A folder that cannot be read as definitions: what and where."""


def read_folder(folder: Path) -> dict[str, str]:
    """Return path → text of a folder's `.yaml`, `.md` and `.json` files; demo scripts and hidden files are left out.

    Raises:
        FolderError: no such folder, a link that leads out of it, a file that is too large or not UTF-8.
    """
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise FolderError(f"there is no folder {folder}")
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.suffix not in SUFFIXES or not path.is_file() or any(p.startswith(".") for p in name.parts):
            continue
        if len(name.parts) >= 4 and name.parts[0] == "workflows" and name.parts[2] == "demo":
            continue
        if not path.resolve().is_relative_to(root):
            raise FolderError(f"{name} is a link that leads out of {folder}; copy the file instead")
        if path.stat().st_size > FILE_BYTES_MAX:
            raise FolderError(f"{name} has {path.stat().st_size} bytes; at most {FILE_BYTES_MAX} are read")
        try:
            files[name.as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FolderError(f"{name} is not UTF-8 at byte {error.start}") from error
        if len(files) > FILES_MAX:
            raise FolderError(f"{folder} holds more than {FILES_MAX} files; name the definitions folder itself")
    return files


__all__ = ["FolderError", "read_folder"]
