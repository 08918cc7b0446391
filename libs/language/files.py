"""The layout of a `definitions/` folder: which file is what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.base import JsonObject
from libs.language.problems import Problems, hint
from libs.language.reader import FILE_CHARS_MAX, normalise, unkeepable
from libs.language.schemas import read_schema
from libs.language.shapes import Place

FILES_MAX: Final = 2_000
_LAYOUT: Final = (
    "workflows/<id>/workflow.yaml, workflows/<id>/prompts/*.md, workflows/<id>/schemas/*.json, mcp/<server>.yaml, "
    "sources.yaml and channels.yaml are read; rename or remove it"
)


@dataclass(slots=True)
class BundleFiles:
    """The files of one workflow. `prompts` and `schemas` map paths relative to its directory to their text."""

    directory: str
    workflow: str | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"workflows/{self.directory}/workflow.yaml"

    def prompt(self, place: Place, path: str) -> str | None:
        """The normalised text of a prompt that `place` names; None after noting what is wrong with it."""
        if not self._is_there(place, path, self.prompts):
            return None
        text = normalise(self.prompts[path])
        if reason := unkeepable(text):
            place.refuse(f"the prompt {path} {reason}")
        elif not text.strip():
            place.refuse(f"the prompt {path} is empty")
        elif len(text) > FILE_CHARS_MAX:
            place.refuse(f"the prompt {path} has {len(text)} characters; at most {FILE_CHARS_MAX} are read")
        else:
            return text
        return None

    def schema(self, place: Place, path: str, problems: Problems) -> JsonObject | None:
        """The schema that `place` names; None after noting what is wrong with it."""
        if not self._is_there(place, path, self.schemas):
            return None
        return read_schema(f"workflows/{self.directory}/{path}", self.schemas[path], problems)

    def _is_there(self, place: Place, path: str, files: Mapping[str, str]) -> bool:
        if not _stays_inside(path):
            place.refuse(f"`{path[:80]}` must be a path inside workflows/{self.directory}/, without `..`")
            return False
        if path not in files:
            place.refuse(f"no file `{path[:80]}` in workflows/{self.directory}/{hint(path, files)}")
            return False
        return True


@dataclass(slots=True)
class Layout:
    """Every file that is read, by what it is. Servers are named by their file."""

    workflows: tuple[BundleFiles, ...] = ()
    sources: str | None = None
    channels: str | None = None
    servers: dict[str, str] = field(default_factory=dict)


def sort_files(files: Mapping[str, str], problems: Problems) -> Layout:
    """Say what each file is, and note the ones that are nothing."""
    layout = Layout()
    bundles: dict[str, BundleFiles] = {}
    if len(files) > FILES_MAX:
        problems.add("", None, "", f"{len(files)} files; at most {FILES_MAX} are read")
        return layout
    for path, text in sorted(files.items()):
        parts = path.split("/")
        if not _stays_inside(path):
            problems.add(path, None, "", "a path must be relative to the folder, with `/` between names and no `..`")
        elif not _is_left_alone(parts):
            _place(parts, text, layout, bundles, problems)
    layout.workflows = tuple(bundles.values())
    return layout


def _place(parts: list[str], text: str, layout: Layout, bundles: dict[str, BundleFiles], problems: Problems) -> None:
    match parts:
        case ["sources.yaml"]:
            layout.sources = text
        case ["channels.yaml"]:
            layout.channels = text
        case ["mcp", name] if name.endswith(".yaml"):
            layout.servers[name.removesuffix(".yaml")] = text
        case ["workflows", id_, "workflow.yaml"]:
            bundles.setdefault(id_, BundleFiles(id_)).workflow = text
        case ["workflows", id_, "prompts", *_, name] if name.endswith(".md"):
            bundles.setdefault(id_, BundleFiles(id_)).prompts["/".join(parts[2:])] = text
        case ["workflows", id_, "schemas", *_, name] if name.endswith(".json"):
            bundles.setdefault(id_, BundleFiles(id_)).schemas["/".join(parts[2:])] = text
        case _:
            problems.add("/".join(parts), None, "", f"not a file of a definitions folder: {_LAYOUT}")


def _is_left_alone(parts: list[str]) -> bool:
    is_demo = len(parts) > 3 and parts[0] == "workflows" and parts[2] == "demo"
    return is_demo or parts[-1].startswith("README") or any(part.startswith(".") for part in parts)


def _stays_inside(path: str) -> bool:
    """Whether a path is relative, printable and free of empty names, `.` and `..`."""
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(path.split("/"))
