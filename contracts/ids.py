"""Derived stream ids: what must be unique is hashed into the id, so the head row's key makes it unique.

Each function is total and pure; the same arguments give the same id on every machine.
"""

import json
from uuid import UUID, uuid5

_NAMESPACE = UUID("6d696e75-7465-5f62-8f6f-6b2d69647331")


def derive(kind: str, *parts: str | int | UUID) -> UUID:
    """Return the id of the thing of this kind that these parts name. Parts cannot run into each other."""
    return uuid5(_NAMESPACE, json.dumps([kind, *(str(p) for p in parts)], ensure_ascii=True))


def triggered_run(tenant_group: UUID, definition_id: str, trigger_key: str) -> UUID:
    """The run that a trigger key starts: one per (tenant group, definition, key)."""
    return derive("run", tenant_group, definition_id, trigger_key)


def attempt(run: UUID, step: str, round_: int, number: int) -> UUID:
    """Attempt `number` (from 1) at a step in its round (from 1; loops and redoes begin a new round)."""
    return derive("attempt", run, step, round_, number)


def decision(run: UUID, step: str, round_: int, number: int = 1) -> UUID:
    """Decision `number` (from 1) of a step in its round; one that nobody answered in time is asked anew by a retry."""
    return derive("decision", run, step, round_, *(() if number == 1 else (number,)))


def escalation(run: UUID, step: str, round_: int, number: int) -> UUID:
    """The question how a step goes on that failed for good, asked for the `number`th time (from 1) in its round."""
    return derive("escalation", run, step, round_, number)


def wait(run: UUID, step: str, round_: int, number: int) -> UUID:
    """Wait `number` (from 1) of an event step in its round; a step that timed out and is retried waits anew."""
    return derive("wait", run, step, round_, number)


def admission(tenant_group: UUID, definition_id: str, key: str) -> UUID:
    return derive("admission", tenant_group, definition_id, key)


def schedule(tenant_group: UUID, definition_id: str, line: str) -> UUID:
    """A line of a definition's schedules: its cron text or interval, and its zone."""
    return derive("schedule", tenant_group, definition_id, line)


def effect(run: UUID, key: str) -> UUID:
    return derive("effect", run, key)


def inbound(source: str, external_id: str) -> UUID:
    """Source ids are unique per installation, so the tenant group is not part of it."""
    return derive("inbound", source, external_id)


def definition(tenant_group: UUID, definition_id: str) -> UUID:
    return derive("definition", tenant_group, definition_id)


def source(source_id: str) -> UUID:
    """An event source is declared once per installation."""
    return derive("source", source_id)


def server(tenant_group: UUID, server_id: str) -> UUID:
    """An MCP server that write steps of this tenant group may name."""
    return derive("server", tenant_group, server_id)


def channel(tenant_group: UUID, channel_id: str) -> UUID:
    """A channel that notices of this tenant group go out by."""
    return derive("channel", tenant_group, channel_id)


def back_link(effect: UUID) -> UUID:
    """The effect that links a written record back to its run."""
    return derive("back_link", effect)


def notice(tenant_group: UUID, channel_id: str, about: str, subject: UUID, number: int, recipient: str = "") -> UUID:
    """What a channel says to a recipient of the fact with this number in the subject's stream."""
    return derive("notice", tenant_group, channel_id, about, subject, number, recipient)


def grant(tenant_group: UUID, user: UUID, server_id: str) -> UUID:
    """A user's grant for an MCP server: one at a time."""
    return derive("grant", tenant_group, user, server_id)


def tenant_group(name: str) -> UUID:
    return derive("tenant_group", name)


def tenant(tenant_group: UUID, name: str) -> UUID:
    return derive("tenant", tenant_group, name)


def user(tenant_group: UUID, email: str) -> UUID:
    return derive("user", tenant_group, email.lower())


def project(tenant_group: UUID, key: str) -> UUID:
    return derive("project", tenant_group, key)


def key(token_sha256: str) -> UUID:
    """A key's stream is found by the hash of its secret, which is kept nowhere else."""
    return derive("key", token_sha256)
