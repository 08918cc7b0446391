"""Reads a `definitions/` folder into the mapping that the API takes."""

from pathlib import Path

SUFFIXES = frozenset({".yaml", ".yml", ".md", ".json"})
"""`.yml` means nothing to the server, which says so."""

FILES_MAX = 2_000
FILE_BYTES_MAX = 256 * 1024


class FolderError(Exception):
    """A folder that cannot be read as definitions: what and where. `file` is empty when it is the folder itself."""

    def __init__(self, message: str, *, file: str = "") -> None:
        super().__init__(message)
        self.file = file


def read_folder(folder: Path) -> dict[str, str]:
    """Return path → text of a folder's YAML, `.md` and `.json` files; demo scripts and hidden files are left out.

    Raises:
        FolderError: no such folder, a linked folder, a link that leads out, a file that is too large or not UTF-8.
    """
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise FolderError(f"there is no folder {folder}")
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if _is_left_out(name):
            continue
        if path.is_symlink() and path.is_dir():
            raise _refused(name, "is a linked folder, which is not followed; copy it instead")
        if path.suffix in SUFFIXES and path.is_file():
            if len(files) == FILES_MAX:
                raise FolderError(f"{folder} holds more than {FILES_MAX} files; name the definitions folder itself")
            files[name.as_posix()] = _text(path, name, root)
    return files


def _is_left_out(name: Path) -> bool:
    is_demo = len(name.parts) >= 4 and name.parts[0] == "workflows" and name.parts[2] == "demo"
    return is_demo or any(part.startswith(".") for part in name.parts)


def _text(path: Path, name: Path, root: Path) -> str:
    if not path.resolve().is_relative_to(root):
        raise _refused(name, "is a link that leads out of the folder; copy the file instead")
    content = path.read_bytes() if path.stat().st_size <= FILE_BYTES_MAX else None
    if content is None:
        raise _refused(name, f"has {path.stat().st_size} bytes; at most {FILE_BYTES_MAX} are read")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(name, f"is not UTF-8 at byte {error.start}") from error


def _refused(name: Path, reason: str) -> FolderError:
    return FolderError(f"{name.as_posix()} {reason}", file=name.as_posix())


__all__ = ["FolderError", "read_folder"]
