"""Which definitions an event starts, and why others that match are not started. Pure."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.events.definition import DefinitionSynced, EventTrigger
from contracts.events.inbound import SkippedTrigger
from contracts.events.run import UserRef
from libs.domain import inbound
from libs.domain.inbound import Start, trigger_key
from libs.language.matching import matches, unmet
from services.ingest.queries import Known

NAMED_MAX: Final = 5
"""Workflows that a reason names. A source may start hundreds."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The runs to start, the definitions that match and are not started, and why nothing follows if nothing does."""

    starts: tuple[Start, ...]
    skipped: tuple[SkippedTrigger, ...]
    why: str


def route(tenant_group: UUID, event: inbound.State, known: Known) -> Starts:
    """One start per definition that matches, or the reason why not.

    A definition with several triggers that match is started once, by the first of them: they share their trigger key.
    """
    starts: list[Start] = []
    skipped: list[SkippedTrigger] = []
    others: list[str] = []
    for definition in known.definitions:
        triggers = [trigger for trigger in definition.event_triggers if trigger.source == event.source]
        trigger = next((t for t in triggers if matches(t.match, event.event, event.keys)), None)
        if trigger is None:
            others += [_unlike(definition, triggers[0], event)] if triggers else []
            continue
        start = _start(tenant_group, definition, trigger, event, known)
        if isinstance(start, Start):
            starts.append(start)
        else:
            skipped.append(SkippedTrigger(definition_id=definition.definition_id, reason=start))
    return Starts(tuple(starts), tuple(skipped), _why(event.source, skipped, others))


def _unlike(definition: DefinitionSynced, trigger: EventTrigger, event: inbound.State) -> str:
    return f"{definition.definition_id} asks for another {', '.join(unmet(trigger.match, event.event, event.keys))}"


def _why(source: str, skipped: list[SkippedTrigger], others: list[str]) -> str:
    """Names keys and no values: what an event holds is not for every reader of a list."""
    if skipped:
        return "no run waits for it, and no workflow that it matches could be started"
    if not others:
        return f"no run waits for it, and no workflow is started by the source {source!r}"
    more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
    return f"no run waits for it, and no trigger matches: {'; '.join(others[:NAMED_MAX])}{more}"


def _start(
    tenant_group: UUID, definition: DefinitionSynced, trigger: EventTrigger, event: inbound.State, known: Known
) -> Start | str:
    """The run to start, or the reason why it is not."""
    missing = [key for key in definition.required_context if event.keys.get(key) is None]
    if missing:
        return f"the event has no {', '.join(missing)}, which the definition requires"
    owner = known.users.get(trigger.run_as.lower())
    if owner is None or not owner.active or owner.kind not in {"user", "service_user"}:
        # Kept in the history as it is: whose email that is, the definition says.
        return f"no active user has the email that `run_as` of {definition.definition_id} names"
    project = known.projects.get(trigger.project) if trigger.project is not None else None
    if trigger.project is not None and (project is None or not project.active or project.kind != "project"):
        return f"there is no project {trigger.project!r}, which the trigger names"
    key = trigger_key(event.source, event.external_id)
    return Start(
        run_id=ids.triggered_run(tenant_group, definition.definition_id, key),
        definition_id=definition.definition_id,
        hash=definition.hash,
        bundle=definition.bundle,
        initiated_by=UserRef(id=ids.user(tenant_group, trigger.run_as), email=owner.email or trigger.run_as),
        project_id=trigger.project,
    )
