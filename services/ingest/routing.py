"""Which definitions a delivery starts, and why others that match are not started. Pure."""

from contracts import ids
from contracts.base import JsonObject
from contracts.events.definition import DefinitionSynced, EventTrigger
from contracts.events.inbound import SkippedTrigger
from contracts.events.run import UserRef
from libs.domain.inbound import Record, Start, trigger_key
from libs.eventstore.port import Delivery
from libs.language.matching import matches
from services.ingest.queries import Known


def route(delivery: Delivery, known: Known) -> Record:
    """Return the record of a delivery: one start per definition that matches, or the reason why not.

    A definition with several triggers that match is started once, by the first of them: they share their trigger key.
    """
    keys: JsonObject = dict(delivery.keys)
    starts: list[Start] = []
    skipped: list[SkippedTrigger] = []
    for definition in known.definitions:
        trigger = _matching(definition, delivery, keys)
        if trigger is None:
            continue
        start = _start(definition, trigger, delivery, keys, known)
        if isinstance(start, Start):
            starts.append(start)
        else:
            skipped.append(SkippedTrigger(definition_id=definition.definition_id, reason=start))
    return Record(
        inbound_id=delivery.id,
        source=delivery.source,
        external_id=delivery.external_id,
        event=delivery.event,
        keys=keys,
        payload=delivery.payload,
        body_sha256=delivery.body_sha256,
        starts=tuple(starts),
        skipped=tuple(skipped),
    )


def _matching(definition: DefinitionSynced, delivery: Delivery, keys: JsonObject) -> EventTrigger | None:
    for trigger in definition.event_triggers:
        if trigger.source == delivery.source and matches(trigger.match, delivery.event, keys):
            return trigger
    return None


def _start(
    definition: DefinitionSynced, trigger: EventTrigger, delivery: Delivery, keys: JsonObject, known: Known
) -> Start | str:
    """The run to start, or the reason why it is not."""
    missing = [key for key in definition.required_context if keys.get(key) is None]
    if missing:
        return f"the event has no {', '.join(missing)}, which the definition requires"
    owner = known.users.get(trigger.run_as.lower())
    if owner is None or not owner.active or owner.kind not in {"user", "service_user"}:
        return f"no active user has the email {trigger.run_as}, which run_as names"
    project = known.projects.get(trigger.project) if trigger.project is not None else None
    if trigger.project is not None and (project is None or not project.active or project.kind != "project"):
        return f"there is no project {trigger.project!r}, which the trigger names"
    key = trigger_key(delivery.source, delivery.external_id)
    return Start(
        run_id=ids.triggered_run(delivery.tenant_group, definition.definition_id, key),
        definition_id=definition.definition_id,
        hash=definition.hash,
        bundle=definition.bundle,
        initiated_by=UserRef(id=ids.user(delivery.tenant_group, trigger.run_as), email=owner.email or trigger.run_as),
        project_id=trigger.project,
    )
