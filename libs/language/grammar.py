"""The keys of the language: what a workflow, a source and a server may say, and of which type."""

import re
from dataclasses import replace
from typing import Any, Final, get_args

from libs.language import nodes
from libs.language.scalars import (
    EMAIL,
    ID,
    KEY,
    NAME,
    PATH,
    QUEUE,
    ROLE,
    boolean,
    duration,
    integer,
    json_object,
    json_value,
    microdollars,
    one_of,
    pattern,
    text,
)
from libs.language.shapes import (
    REFUSED,
    Check,
    Checked,
    Field,
    Place,
    Refused,
    Shape,
    each,
    fill,
    mapping,
    refuse,
    table,
)
from minutebook.models.states import DecisionOutcome, FailureAction, FailureClass

OUTCOMES: Final = frozenset(get_args(DecisionOutcome))
FAILURE_CLASSES: Final = frozenset(get_args(FailureClass))
FAILURE_ACTIONS: Final = frozenset(get_args(FailureAction))
EXECUTORS: Final = frozenset({"anthropic", "echo"})
EXECUTORS_LATER: Final = frozenset({"claude_code", "sdk", "graph"})
WORD: Final = re.compile(r"[a-z][a-z_]*")

_key = pattern(KEY, "a key")
_id = pattern(ID, "an id")
_role = pattern(ROLE, "a role")
_setting = pattern(KEY, "the name of a setting")
_step_key = pattern(KEY, "the key of a step")


def _shape(*required: tuple[str, Check], later: str = "", **optional: Check) -> Shape:
    fields = {name: Field(check, required=True) for name, check in required}
    return Shape({**fields, **{name: Field(check) for name, check in optional.items()}}, frozenset(later.split()))


def _by_kind(shapes: dict[str, Shape], *, later: frozenset[str]) -> Check:
    """A mapping whose `kind` says which keys it has. Of a kind that is not supported yet only the key is read."""
    nameless = Shape({"kind": Field(one_of(frozenset(shapes), later=later), required=True)})

    def check(place: Place) -> Checked | Refused:
        node = place.node
        if not isinstance(node, nodes.Mapping):
            return refuse(place, "a mapping")
        shape = shapes.get(_text_of(node, "kind") or "")
        if shape:
            return fill(place, node, shape)
        kind = {key: value for key, value in node.entries.items() if key == "kind"}
        fill(place, nodes.Mapping(kind, node.lines, node.line), nameless)
        key = _text_of(node, "key")
        return Checked(place, {"key": key} if key else {}, frozenset(node.entries))

    return check


def _text_of(node: nodes.Mapping, key: str) -> str | None:
    value = node.entries.get(key)
    return value.value if isinstance(value, nodes.Scalar) and isinstance(value.value, str) else None


_AGENT: Final[dict[str, Check]] = {
    "kind": one_of(frozenset({"agent"})),
    "name": text,
    "agent": one_of(EXECUTORS, later=EXECUTORS_LATER),
    "queue": pattern(QUEUE, "a queue"),
    "output": text,
    "model": pattern(NAME, "a model"),
    "budget_usd": microdollars,
}

AGENT: Final = _shape(
    ("key", _key),
    ("prompt", text),
    later="tools",
    **_AGENT,
    gate=text,
    loop_to=_step_key,
    loop_max=integer(1, 20),
)

BRANCH: Final = _shape(("key", _key), ("prompt", text), later="tools gate loop_to loop_max", **_AGENT)

DECISION: Final = _shape(
    ("key", _key),
    ("kind", text),
    ("role", _role),
    later="due escalate_to",
    name=text,
    artifact=_step_key,
    outcomes=each(one_of(OUTCOMES), at_least=1),
    on=table(_step_key, key=WORD, what="an outcome", keys=OUTCOMES),
)

PARALLEL: Final = _shape(
    ("key", _key),
    ("kind", text),
    ("parallel", each(mapping(BRANCH), at_least=1)),
    name=text,
    join=one_of(frozenset({"all"}), later=frozenset({"any"})),
)

WRITE: Final = _shape(
    ("key", _key),
    ("kind", text),
    ("system", _id),
    ("tool", pattern(NAME, "a tool")),
    ("effect_key", text),
    name=text,
    args_from=pattern(PATH, "a dotted path"),
    args=json_object,
    requires_decision=_step_key,
)

STEP: Final = _by_kind(
    {"agent": AGENT, "decision": DECISION, "parallel": PARALLEL, "write": WRITE},
    later=frozenset({"manual", "event", "gate"}),
)

STAGE: Final = _shape(
    ("key", _key),
    ("steps", each(STEP, at_least=1)),
    name=text,
    entry=mapping(_shape(requires=each(pattern(PATH, "a dotted path")))),
)


def _match_value(place: Place) -> Any:
    """A scalar, or a list of scalars of which any will do. Nothing is compared with null or with a run's context."""
    value = json_value(place)
    if isinstance(value, Refused):
        return value
    alternatives: list[Any] = value if isinstance(value, list) else [value]
    if not alternatives or any(item is None or isinstance(item, (dict, list)) for item in alternatives):
        place.refuse("must be text, a number or a boolean, or a list of them")
        return REFUSED
    if any(isinstance(item, str) and item.startswith("$context.") for item in alternatives):
        place.refuse("a trigger starts a run, so there is no context to compare with; write the value out")
        return REFUSED
    return value


TRIGGER: Final = _by_kind(
    {
        "manual": _shape(("kind", text), ("roles", each(_role, at_least=1))),
        "event": _shape(
            ("kind", text),
            ("source", _id),
            ("match", table(_match_value, key=re.compile(r"[A-Za-z_][A-Za-z0-9_-]*"), what="a key of an event")),
            project=pattern(NAME, "a project"),
        ),
    },
    later=frozenset({"schedule"}),
)

WORKFLOW: Final = _shape(
    ("id", text),  # compared with the directory's name, which is what must have the form of an id
    ("name", text),
    ("stages", each(mapping(STAGE), at_least=1)),
    later="repo permission_mode variants",
    domain=text,
    description=text,
    enabled=boolean,
    context=mapping(_shape(later="scope", required=each(pattern(KEY, "a context key")))),
    triggers=each(TRIGGER),
    run_as=pattern(EMAIL, "the email of a service user"),
    roles=table(mapping(_shape(roles=each(_role), groups=each(_role))), key=ROLE, what="a role"),
    limits=mapping(_shape(max_attempts=integer(1, 20), max_loop=integer(0, 20), wall_clock=duration)),
    on_failure=table(
        one_of(FAILURE_ACTIONS, later=frozenset({"escalate"})), key=WORD, what="a failure class", keys=FAILURE_CLASSES
    ),
)

SOURCE: Final = _shape(
    ("id", _id),
    ("kind", one_of(frozenset({"webhook"}))),
    ("adapter", one_of(frozenset({"jira", "generic"}), later=frozenset({"salesforce"}))),
    secret_ref=_setting,
    signature_header=pattern(re.compile(r"[A-Za-z0-9-]{1,64}"), "the name of a header"),
)

SERVER: Final = _shape(
    ("id", _id),
    ("transport", one_of(frozenset({"streamable_http"}))),
    ("url_ref", _setting),
    (
        "tools",
        table(
            mapping(_shape(reference=pattern(PATH, "a dotted path"), timeout=duration)), key=NAME, what="a tool's name"
        ),
    ),
    name=text,
    token_ref=_setting,
)


def _root(shape: Shape) -> Check:
    """The one top key of a file, which does not stand in paths: `stages.review`, not `workflow.stages.review`."""

    def check(place: Place) -> Checked | Refused:
        if not isinstance(place.node, nodes.Mapping):
            return refuse(place, "a mapping")
        return fill(replace(place, path=""), place.node, shape)

    return check


WORKFLOW_FILE: Final = _shape(("workflow", _root(WORKFLOW)))
SERVER_FILE: Final = _shape(("server", _root(SERVER)))
SOURCES_FILE: Final = _shape(("sources", each(mapping(SOURCE))))
