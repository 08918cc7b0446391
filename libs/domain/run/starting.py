"""How runs come about: started by hand, or again with what another one was started with."""

from datetime import datetime
from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, JsonObject, Principal
from contracts.errors import Rejected
from contracts.events import run as e
from libs.domain.access import holds
from libs.domain.core import NOTHING, Decided
from libs.domain.run.commands import Create, Evidence, Fork, Restart
from libs.domain.run.operating import may_operate
from libs.domain.run.programs.definition import advance, key_of
from libs.domain.run.state import State
from libs.domain.run.walk import Walk
from libs.language.model import DEFAULT_VARIANT, Bundle, Definition, ManualTrigger
from libs.language.paths import MISSING, resolve
from minutebook.models.problem import ProblemItem


def create(command: Create, state: State, now: datetime) -> Decided:
    """Start a run by hand, as a holder of a role of one of the manual triggers."""
    variant = plain_variant(command.variant)
    definition = definition_of(command.evidence, variant)
    if state.status != "absent":
        return _started_before(command, state, definition)
    must_be_enabled(definition)
    principal, project = command.principal, command.project_id
    roles = {role for t in definition.triggers if isinstance(t, ManualTrigger) for role in t.roles}
    if not any(holds(principal, definition.binding(role), project_id=project) for role in roles):
        needed = ", ".join(sorted(roles)) or "nobody: the definition has no manual trigger"
        raise Rejected("run.not_yours", f"{definition.id} is started by {needed}", status=403)
    if project is not None and project not in principal.projects:
        raise Rejected("project.not_yours", f"you are not a member of project {project!r}", status=403)
    context: JsonObject = {**definition.context_defaults, **command.context}
    must_be_admissible(definition, command.evidence, context)
    walk = Walk(command.run_id, now, state, command.evidence, definition)
    walk.emit(created(walk, command.bundle, principal, context, project_id=project, variant=variant))
    return advance(walk)


def restart(command: Restart, state: State, now: datetime) -> Decided:
    """Start a new run with the context, project and variant of another one; whoever restarts it owns the new one."""
    parent = command.parent
    may_operate(command.principal, parent)
    if state.status != "absent":
        return same_child(state, command.parent_id)
    definition = definition_of(command.evidence, parent.variant)
    must_be_enabled(definition)
    context: JsonObject = {**definition.context_defaults, **parent.context}
    must_be_admissible(definition, command.evidence, context)
    walk = Walk(command.run_id, now, state, command.evidence, definition)
    walk.emit(
        created(
            walk,
            command.bundle,
            command.principal,
            context,
            project_id=parent.project_id,
            variant=parent.variant,
            parent=command.parent_id,
        )
    )
    return advance(walk)


def created(
    walk: Walk,
    bundle: BlobRef,
    principal: Principal,
    context: JsonObject,
    *,
    project_id: str | None,
    variant: str | None,
    parent: object = None,
) -> e.RunCreated:
    """The birth of a run that a person started."""
    return e.RunCreated.model_validate(
        {
            "at": walk.now,
            "definition_id": walk.definition.id,
            "hash": walk.bundle.hash,
            "bundle": bundle,
            "context": context,
            "initiated_by": e.UserRef(id=principal.id, email=principal.name),
            "trigger": e.Trigger(kind="manual"),
            "project_id": project_id,
            "variant": variant,
            "parent": parent,
        }
    )


def key_id_of(command: Create | Restart | Fork) -> UUID | None:
    """The concurrency key that a new run will ask for; None for none, and where the start will be refused anyway."""
    evidence = command.evidence
    assert evidence.tenant_group is not None, "a run is created with its evidence"
    if isinstance(command, Create):
        variant, context = plain_variant(command.variant), command.context
    else:
        changes = command.context if isinstance(command, Fork) else {}
        variant, context = command.parent.variant, {**command.parent.context, **changes}
    try:
        definition = definition_of(evidence, variant)
        if definition.concurrency is None:
            return None
        key = key_of(definition.concurrency, {**definition.context_defaults, **context})
    except Rejected:
        return None
    return ids.admission(evidence.tenant_group, definition.id, key)


def plain_variant(variant: str | None) -> str | None:
    """The default variant has two names, of which the record keeps one: None."""
    return None if variant == DEFAULT_VARIANT else variant


def definition_of(evidence: Evidence, variant: str | None) -> Definition:
    """The definition as the variant has it.

    Raises:
        contracts.errors.Rejected: ``run.variant_unknown`` (422), with those that there are.
    """
    bundle: Bundle | None = evidence.bundle
    assert bundle is not None, "a run is created with its evidence"
    try:
        return bundle.of(variant)
    except KeyError:
        known = ", ".join(sorted({DEFAULT_VARIANT, *bundle.variants}))
        message = f"{bundle.definition.id} has no variant {variant!r}; it has {known}"
        item = ProblemItem(path="variant", message=f"must be one of {known}")
        raise Rejected("run.variant_unknown", message, errors=(item,)) from None


def must_be_enabled(definition: Definition) -> None:
    if not definition.enabled:
        raise Rejected("definition.disabled", f"{definition.id} is disabled; sync it with `enabled: true`", status=409)


def must_be_admissible(definition: Definition, evidence: Evidence, context: JsonObject) -> None:
    """Refuse a start without its context, and one that its full concurrency key would refuse anyway.

    Raises:
        contracts.errors.Rejected: ``run.context_missing`` (422) naming the keys, ``admission.full`` (429).
    """
    missing = tuple(
        ProblemItem(path=f"context.{key}", message=f"{definition.id} needs this key; it has no value")
        for key in definition.required_context
        if resolve(key, context) in (None, MISSING, "")
    )
    if missing:
        named = ", ".join(item.path for item in missing)
        raise Rejected("run.context_missing", f"the start lacks {named}", errors=missing)
    concurrency = definition.concurrency
    if concurrency is None:
        return
    try:
        key = key_of(concurrency, context)
    except Rejected as error:
        message = f"the concurrency key of {definition.id}: {error.message}"
        raise Rejected("run.context_missing", message, errors=error.errors) from error
    held = evidence.key
    full = (
        held is not None
        and concurrency.mode == "queue"
        and len(held.holders) >= concurrency.limit
        and len(held.queued) >= concurrency.max_queued
    )
    if full:
        raise Rejected(
            "admission.full",
            f"{concurrency.max_queued} runs of {definition.id} wait under the key {key!r} already, as many as "
            "concurrency.max_queued allows; start it later",
            status=429,
        )


def same_child(state: State, parent_id: object) -> Decided:
    """The same restart or fork sent again says nothing; the run of another start is not taken for it."""
    if state.parent != parent_id:
        raise Rejected("run.key_reused", "this run id is taken by another start; use a new one", status=409)
    return NOTHING


def _started_before(command: Create, state: State, definition: Definition) -> Decided:
    """The same start sent again gets the run that the first one made; another one under its key is refused."""
    same = (
        state.definition_id == command.definition_id
        and {**definition.context_defaults, **command.context} == {**definition.context_defaults, **state.context}
        and state.project_id == command.project_id
        and state.variant == plain_variant(command.variant)
    )
    if not same:
        raise Rejected(
            "run.key_reused",
            "this idempotency key has started a run with another definition, context, project or variant; use a new "
            "key",
            status=409,
            run_id=str(command.run_id),
        )
    return NOTHING
