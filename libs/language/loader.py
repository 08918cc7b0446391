"""A `definitions/` folder → checked values, or every problem of every file at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.base import JsonObject
from libs.language import build, nodes
from libs.language.channel_rules import check_channels
from libs.language.decision_rules import check_timeout_answer
from libs.language.files import BundleFiles, Layout, sort_files
from libs.language.grammar import CHANNELS_FILE, SERVER_FILE, SOURCES_FILE, WORKFLOW_FILE
from libs.language.hashing import content_hash
from libs.language.listings import Tools, check_listed
from libs.language.model import ANSWER_FORM, DEFAULT_VARIANT, Bundle, Folder
from libs.language.outline import Outline, kind_of
from libs.language.problems import PROBLEMS_MAX, Problems
from libs.language.reader import read
from libs.language.rules import check_workflow
from libs.language.scalars import ID
from libs.language.server_rules import check_server, read_back
from libs.language.shapes import Checked, Place, Shape, fill, refuse
from libs.language.step_rules import Declared
from libs.language.variants import Variant, derive


def load_folder(files: Mapping[str, str], *, listed: Mapping[str, Tools] | None = None) -> Folder:
    """Check a whole folder, given as paths relative to it (`/` between names) → text.

    `listed` is what servers that were asked say of their tools, by the id of the server.

    Read are `workflows/<id>/workflow.yaml` with `prompts/` and `schemas/` beside it, `mcp/<server>.yaml`,
    `sources.yaml` and `channels.yaml`. `workflows/<id>/demo/`, README files and names that begin with a dot are left
    alone; any other file is a problem, since it would silently mean nothing.

    Raises:
        contracts.errors.Rejected: ``definition.invalid`` (422) with one item per problem: dotted path, message,
            file and, where there is one, the 1-based line.
    """
    problems = Problems()
    layout = sort_files(files, problems)
    sources = _sources(layout, problems)
    servers = _servers(layout, problems)
    channels = _channels(layout, problems)
    declared = Declared(
        sources=None if sources is None else frozenset(str(source.get("id")) for source in sources),
        tools={name: _tools(server) for name, server in servers.items()} or None,
        read_back={name: read_back(server) for name, server in servers.items() if server},
        listed=listed or {},
    )
    for name, server in servers.items():
        if server and name in declared.listed:
            check_listed(server, declared.listed[name])
    drafts = [_workflow(bundle, declared, problems) for bundle in layout.workflows]
    problems.raise_if_any()
    return Folder(
        workflows=tuple(draft.bundle() for draft in drafts if draft),
        sources=tuple(build.source(source) for source in sources or ()),
        servers=tuple(build.server(server) for server in servers.values() if server),
        channels=tuple(build.channel(channel) for channel in channels),
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    """A workflow that was read, with the files that its steps name. `variants` are the workflow with each's changes."""

    workflow: Checked
    outline: Outline
    variants: dict[str, tuple[Variant, Outline]] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, JsonObject] = field(default_factory=dict)

    def bundle(self) -> Bundle:
        values = nodes.plain(self.workflow.place.node)
        made = {
            name: build.definition(variant.workflow, outline, context_defaults=variant.context)
            for name, (variant, outline) in self.variants.items()
        }
        plain = build.definition(self.workflow, self.outline)
        return Bundle(
            definition=made.pop(DEFAULT_VARIANT, plain),
            variants=made,
            prompts=self.prompts,
            schemas=self.schemas,
            hash=content_hash(values, prompts=self.prompts, schemas=self.schemas),
        )


def _document(file: str, text: str, top: str, shape: Shape, problems: Problems) -> Checked | None:
    """Read a file that holds one top key. Returns None when nothing below it can be judged."""
    node = read(file, text, problems, path=top)
    if node is None:
        return None
    place = Place(file, "", node, node.line, problems)
    if not isinstance(node, nodes.Mapping):
        refuse(Place(file, top, node, node.line, problems), f"a mapping with the key `{top}`")
        return None
    return fill(place, node, shape)


def _workflow(bundle: BundleFiles, declared: Declared, problems: Problems) -> _Draft | None:
    if not ID.fullmatch(bundle.directory):
        problems.add(bundle.file, None, "id", f"the directory's name `{bundle.directory}` must match {ID.pattern}")
    if bundle.workflow is None:
        problems.add(bundle.file, None, "workflow", f"missing: workflows/{bundle.directory}/ needs a workflow.yaml")
        return None
    document = _document(bundle.file, bundle.workflow, "workflow", WORKFLOW_FILE, problems)
    workflow = document.get("workflow") if document else None
    if not isinstance(workflow, Checked):
        return None
    draft = _Draft(workflow, check_workflow(workflow, directory=bundle.directory, declared=declared))
    _attach(draft.outline, bundle, draft, problems)
    if len(problems) >= PROBLEMS_MAX:
        return draft  # no more can be told, and each variant would find the same ones
    for variant in derive(workflow):
        outline = check_workflow(variant.workflow, directory=bundle.directory, declared=declared)
        _attach(outline, bundle, draft, variant.problems)
        variant.tell(workflow.place.problems)
        draft.variants[variant.name] = (variant, outline)
    return draft


def _attach(outline: Outline, bundle: BundleFiles, draft: _Draft, problems: Problems) -> None:
    """Take in the prompts and the schemas that steps and branches name."""
    for step in outline.steps:
        for one in (step, *(step.get("parallel") or ())):
            prompt = one.get("prompt")
            if prompt is not None and (text := bundle.prompt(one.at("prompt"), prompt)) is not None:
                draft.prompts[prompt] = text
            for key in ("output", "form"):
                path = one.get(key)
                if path is not None and path not in draft.schemas:
                    schema = bundle.schema(one.at(key), path, problems)
                    if schema is not None:
                        draft.schemas[path] = schema
        if kind_of(step) == "question":
            form = draft.schemas.get(step.get("form")) if "form" in step.given else ANSWER_FORM
            if form is not None:
                check_timeout_answer(step, form)


def _sources(layout: Layout, problems: Problems) -> tuple[Checked, ...] | None:
    """The declared sources; None when there is no such file, or when not all of it could be read."""
    if layout.sources is None:
        return None
    before = len(problems)
    document = _document("sources.yaml", layout.sources, "sources", SOURCES_FILE, problems)
    sources: tuple[Checked, ...] = (document.get("sources") or ()) if document else ()
    seen: set[str] = set()
    for source in sources:
        id_ = source.get("id")
        if id_ in seen:
            source.refuse("id", f"`{id_}` is declared already; source ids are unique in the installation")
        seen.add(id_)
    return sources if len(problems) == before else None


def _channels(layout: Layout, problems: Problems) -> tuple[Checked, ...]:
    if layout.channels is None:
        return ()
    document = _document("channels.yaml", layout.channels, "channels", CHANNELS_FILE, problems)
    channels: tuple[Checked, ...] = (document.get("channels") or ()) if document else ()
    check_channels(channels)
    return channels


def _servers(layout: Layout, problems: Problems) -> dict[str, Checked | None]:
    """The declared servers by the name of their file; None for one that could not be read."""
    servers: dict[str, Checked | None] = {}
    for name, text in layout.servers.items():
        document = _document(f"mcp/{name}.yaml", text, "server", SERVER_FILE, problems)
        server = document.get("server") if document else None
        servers[name] = server
        if server and (id_ := server.get("id")) is not None and id_ != name:
            server.refuse("id", f"`{id_}` is not the name of its file; make it `{name}`, or rename the file")
        if server:
            check_server(server)
    return servers


def _tools(server: Checked | None) -> frozenset[str] | None:
    tools = server.get("tools") if server else None
    return None if tools is None else frozenset(tools)
