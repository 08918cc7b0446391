"""The keys of the language: what a workflow, a source, a server and a channel may say, and of which type."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Final, get_args

from libs.language import nodes
from libs.language.kinds import by_kind, match_of
from libs.language.scalars import (
    ADDRESS,
    EMAIL,
    ID,
    KEY,
    NAME,
    PATH,
    REPOSITORY,
    ROLE,
    boolean,
    cron_line,
    duration,
    duration_within,
    integer,
    json_object,
    json_value,
    one_of,
    pattern,
    text,
    timezone,
)
from libs.language.shapes import Check, Checked, Place, Refused, Shape, check, each, fill, mapping, refuse, shape, table
from libs.language.steps import STAGE
from minutebook.models.states import ChannelKind, FailureAction, FailureClass, NoticeAbout

FAILURE_CLASSES: Final = frozenset(get_args(FailureClass))
FAILURE_ACTIONS: Final = frozenset(get_args(FailureAction))
PERMISSION_MODES: Final = frozenset({"acceptEdits", "auto", "dontAsk", "manual", "plan"})
"""Those of Claude Code but bypassPermissions, under which no tool call would be asked about."""

OWN_SECRETS: Final = frozenset(
    {"anthropic_api_key", "sealing_key", "sealing_key_previous", "seal_signing_key", "seal_public_keys"}
)
"""What no definition may name: a server that it declares would be sent what all is sealed or signed or paid with."""

WINDOW_MAX: Final = timedelta(days=7)
_WORD: Final = re.compile(r"[a-z][a-z_]*")
_OVERRIDDEN: Final = re.compile(r"[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+)*")
_role = pattern(ROLE, "a role")
_tool = pattern(NAME, "a tool's name")
_path = pattern(PATH, "a dotted path")
_variable = pattern(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"), "the name of an environment variable")
_context_key = pattern(KEY, "a context key")
_project = pattern(NAME, "a project")
_setting = pattern(
    KEY, "the name of a setting", but=OWN_SECRETS, why="is a secret of the installation itself; name another one"
)
_address = pattern(ADDRESS, "an address of e-mail")

TRIGGERS: Final = {
    "manual": shape(("kind", text), ("roles", each(_role, at_least=1))),
    "event": shape(
        ("kind", text),
        ("source", pattern(ID, "an id")),
        ("match", match_of(reads_context=False)),
        project=_project,
    ),
    "schedule": shape(
        ("kind", text),
        cron=cron_line,
        every=duration,
        timezone=timezone,
        overlap=one_of(frozenset({"skip", "allow"})),
        project=_project,
    ),
}

CONTEXT: Final = shape(required=each(_context_key), scope=each(_context_key))
CONCURRENCY: Final = shape(
    key=text,
    limit=integer(1, 1_000),
    mode=one_of(frozenset({"queue", "coalesce"})),
    max_queued=integer(1, 100_000),
)
ROLE_BINDING: Final = shape(roles=each(_role), groups=each(_role), project=boolean)
LIMITS: Final = shape(max_attempts=integer(1, 20), max_loop=integer(0, 20), wall_clock=duration)

WORKFLOW: Final = shape(
    ("id", text),  # compared with the directory's name, which is what must have the form of an id
    ("name", text),
    ("stages", each(mapping(STAGE), at_least=1)),
    domain=text,
    description=text,
    enabled=boolean,
    repo=pattern(REPOSITORY, "the address of a repository over https or ssh, without credentials"),
    permission_mode=one_of(PERMISSION_MODES),
    variants=table(
        table(json_value, key=_OVERRIDDEN, what="a dotted path"),
        key=re.compile(ID.pattern),
        what="the name of a variant",
    ),
    context=mapping(CONTEXT),
    concurrency=mapping(CONCURRENCY),
    triggers=each(by_kind(TRIGGERS)),
    run_as=pattern(EMAIL, "the email of a service user"),
    roles=table(mapping(ROLE_BINDING), key=ROLE, what="a role"),
    limits=mapping(LIMITS),
    on_failure=table(one_of(FAILURE_ACTIONS), key=_WORD, what="a failure class", keys=FAILURE_CLASSES),
)

SOURCE: Final = shape(
    ("id", pattern(ID, "an id")),
    ("kind", one_of(frozenset({"webhook"}))),
    ("adapter", one_of(frozenset({"jira", "salesforce", "github", "generic"}))),
    secret_ref=_setting,
    signature_header=pattern(re.compile(r"[A-Za-z0-9-]{1,64}"), "the name of a header"),
    window=duration_within(timedelta(0), WINDOW_MAX),
)

PROBE: Final = shape(
    ("tool", _tool),
    ("match", json_object),
    args=json_object,
    items=_path,
    reference=_path,
    absent=one_of(frozenset({"in_doubt", "not_landed"})),
)
BACK_LINK: Final = shape(("tool", _tool), ("args", json_object))
SERVER_TOOL: Final = shape(
    reference=_path,
    timeout=duration,
    idempotency_argument=pattern(NAME, "the name of an argument"),
    probe=mapping(PROBE),
    back_link=mapping(BACK_LINK),
)

SERVER: Final = shape(
    ("id", pattern(ID, "an id")),
    ("transport", one_of(frozenset({"streamable_http", "stdio"}))),
    ("tools", table(mapping(SERVER_TOOL), key=NAME, what="a tool's name")),
    name=text,
    url_ref=_setting,
    token_ref=_setting,
    command=each(text, at_least=1),
    env=table(_setting, key=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"), what="the name of an environment variable"),
    grants=one_of(frozenset({"required", "optional", "none"})),
    grant_env=_variable,
    concurrency=integer(1, 100),
    rate_limit=mapping(shape(("calls", integer(1, 10_000)), ("per", duration))),
    circuit_breaker=mapping(shape(failures=integer(1, 100), cooldown=duration)),
)

CHANNEL: Final = shape(
    ("id", pattern(ID, "an id")),
    ("kind", one_of(frozenset(get_args(ChannelKind)))),
    ("url_ref", _setting),
    ("about", each(one_of(frozenset(get_args(NoticeAbout))))),
    secret_ref=_setting,
    roles=each(_role),
    definitions=each(pattern(ID, "the id of a workflow")),
    sender=_address,
    to=each(_address),
    holders=boolean,
)


def _root(one: Shape) -> Check:
    """The one top key of a file, which does not stand in paths: `stages.review`, not `workflow.stages.review`."""

    @check(one.schema)
    def judge(place: Place) -> Checked | Refused:
        if not isinstance(place.node, nodes.Mapping):
            return refuse(place, "a mapping")
        return fill(replace(place, path=""), place.node, one)

    return judge


WORKFLOW_FILE: Final = shape(("workflow", _root(WORKFLOW)))
SERVER_FILE: Final = shape(("server", _root(SERVER)))
SOURCES_FILE: Final = shape(("sources", each(mapping(SOURCE))))
CHANNELS_FILE: Final = shape(("channels", each(mapping(CHANNEL))))
