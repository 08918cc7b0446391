"""The keys of stages and steps: one shape per kind."""

import re
from dataclasses import replace
from typing import Final, get_args

from libs.language.kinds import by_kind, match_of
from libs.language.scalars import (
    ID,
    KEY,
    NAME,
    PATH,
    QUEUE,
    ROLE,
    TOOL,
    boolean,
    duration,
    integer,
    json_object,
    microdollars,
    one_of,
    pattern,
    text,
)
from libs.language.shapes import Check, each, mapping, shape, table
from minutebook.models.states import DecisionOutcome

OUTCOMES: Final = frozenset(get_args(DecisionOutcome))
TIMEOUT: Final = "timeout"
"""The key of `on` that says where a run goes on for want of an answer."""
EXECUTORS: Final = frozenset({"anthropic", "echo"})
EXECUTORS_LATER: Final = frozenset({"claude_code", "sdk", "graph"})
EXECUTORS_WITH_SESSIONS: Final = frozenset({"claude_code"})
"""Executors whose agents have tools, work in a directory and act under a permission mode."""

_WORD: Final = re.compile(r"[a-z][a-z_]*")
_key = pattern(KEY, "a key")
_role = pattern(ROLE, "a role")
_path = pattern(PATH, "a dotted path")
_step_key = pattern(KEY, "the key of a step")
_tool = pattern(TOOL, "a tool such as Read, Bash(git diff:*) or mcp:tracker")

WAIT: Final = shape(**{"for": duration, "until": text})
FOR_EACH: Final = shape(("items", _path), max_parallel=integer(1, 50))

_COMMON: Final[dict[str, Check]] = {"name": text, "wait": mapping(WAIT)}
_LOOP: Final[dict[str, Check]] = {"loop_to": _step_key, "loop_max": integer(1, 20)}
_AGENT: Final[dict[str, Check]] = {
    "agent": one_of(EXECUTORS, later=EXECUTORS_LATER),
    "queue": pattern(QUEUE, "a queue"),
    "output": text,
    "model": pattern(NAME, "a model"),
    "budget_usd": microdollars,
    "tools": each(_tool),
    "timeout": duration,
}

AGENT: Final = shape(
    ("key", _key),
    ("kind", text),
    ("prompt", text),
    **_COMMON,
    **_AGENT,
    **_LOOP,
    gate=text,
    for_each=mapping(FOR_EACH),
)

BRANCH: Final = replace(
    shape(("key", _key), ("prompt", text), kind=one_of(frozenset({"agent"})), name=text, **_AGENT),
    elsewhere={
        **dict.fromkeys(("gate", *_LOOP), "a branch has no gate; put it at an agent or gate step after this step"),
        **dict.fromkeys(("wait", "for_each"), "a branch begins with its step; put this at a step of its own"),
    },
)

APPROVALS: Final = shape(
    ("need", integer(1, 20)),
    distinct=boolean,
    groups=table(integer(1, 20), key=ROLE, what="a role"),
    veto=one_of(frozenset({"any", "none"})),
)

DECISION: Final = shape(
    ("key", _key),
    ("kind", text),
    ("role", _role),
    **_COMMON,
    timeout=duration,
    artifact=_step_key,
    outcomes=each(one_of(OUTCOMES), at_least=1),
    on=table(_step_key, key=_WORD, what="an outcome or timeout", keys=OUTCOMES | {TIMEOUT}),
    due=duration,
    escalate_to=_role,
    approvals=mapping(APPROVALS),
    approval_valid_for=duration,
    question=text,
    form=text,
    timeout_answer=json_object,
    **{"not": each(_step_key, at_least=1)},
)

MANUAL: Final = shape(("key", _key), ("kind", text), **_COMMON, timeout=duration, role=_role, output=text)

EVENT: Final = shape(
    ("key", _key),
    ("kind", text),
    ("source", pattern(ID, "an id")),
    **_COMMON,
    timeout=duration,
    match=match_of(reads_context=True),
)

GATE: Final = shape(("key", _key), ("kind", text), ("gate", text), **_COMMON, **_LOOP, escalate_to=_role)

PARALLEL: Final = shape(
    ("key", _key),
    ("kind", text),
    ("parallel", each(mapping(BRANCH), at_least=1)),
    **_COMMON,
    join=one_of(frozenset({"all", "any"})),
)

WRITE: Final = shape(
    ("key", _key),
    ("kind", text),
    ("system", pattern(ID, "an id")),
    ("tool", pattern(NAME, "a tool")),
    ("effect_key", text),
    **_COMMON,
    args_from=_path,
    args=json_object,
    requires_decision=_step_key,
    for_each=mapping(FOR_EACH),
)

STEPS: Final = {
    "agent": AGENT,
    "decision": DECISION,
    "manual": MANUAL,
    "event": EVENT,
    "gate": GATE,
    "parallel": PARALLEL,
    "write": WRITE,
}

STAGE: Final = shape(
    ("key", _key),
    ("steps", each(by_kind(STEPS), at_least=1)),
    name=text,
    entry=mapping(shape(requires=each(_path))),
)
