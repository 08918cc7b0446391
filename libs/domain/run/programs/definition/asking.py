"""What a decision is opened with: who is asked, who may not answer, and what is decided on."""

from collections.abc import Iterator

from contracts.base import BlobRef
from contracts.events.decision import Approved, Barred, DecisionOpened, Quorum, QuorumGroup
from libs.domain.access import escalation_binding
from libs.domain.run.programs.definition.four_eyes import deciders_of, revisers_of
from libs.domain.run.walk import Walk
from libs.language.interpolation import interpolate
from libs.language.model import AgentStep, DecisionStep, ManualStep, ParallelStep


def shown_step_of(walk: Walk, step: DecisionStep) -> str | None:
    """The step whose artefact is decided on: the one that is named, else the nearest earlier one that makes one.

    A question shows the one that it names, or none.
    """
    if step.artifact is not None or step.is_question:
        return step.artifact
    return producer_before(walk, step.key)


def producer_before(walk: Walk, key: str) -> str | None:
    """The nearest earlier step that makes an artefact."""
    keys = [s.key for s in walk.steps]
    before = walk.steps[: keys.index(key)]
    return next((s.key for s in reversed(before) if isinstance(s, AgentStep | ManualStep | ParallelStep)), None)


def opening(
    walk: Walk, step: DecisionStep, key: str, *, shown_step: str | None, shown: BlobRef | None
) -> DecisionOpened:
    """The birth of a step's decision.

    Raises:
        contracts.errors.Rejected: 422, the question reads a value that is not set.
    """
    initiated_by = walk.state.initiated_by
    assert initiated_by is not None
    return DecisionOpened(
        at=walk.now,
        run_id=walk.run_id,
        definition_id=walk.state.definition_id,
        step=key,
        title=step.name or key.replace("_", " "),
        round=walk.state.step(key).round,
        role=step.role,
        binding=walk.definition.binding(step.role),
        outcomes=step.outcomes,
        artifact_step=shown_step,
        artifact=shown,
        initiated_by=initiated_by,
        project_id=walk.state.project_id,
        due_at=walk.now + step.due if step.due else None,
        due_seconds=step.due.total_seconds() if step.due else None,
        until=walk.now + step.timeout if step.timeout else None,
        escalate_to=step.escalate_to,
        escalate_binding=escalation_binding(step.escalate_to, walk.definition.binding(step.escalate_to))
        if step.escalate_to
        else None,
        quorum=_quorum(walk, step),
        barred=tuple(_barred(walk, step, shown_step)),
        question=_question(walk, step),
        form=walk.keep(walk.bundle.form_of(step)) if step.is_question else None,
        previous=_previous(walk, key),
    )


def _quorum(walk: Walk, step: DecisionStep) -> Quorum | None:
    approvals = step.approvals
    if approvals is None:
        return None
    return Quorum(
        need=approvals.need,
        distinct=approvals.distinct,
        groups=tuple(
            QuorumGroup(role=role, binding=walk.definition.binding(role), need=need)
            for role, need in approvals.groups.items()
        ),
        veto=approvals.veto,
    )


def _question(walk: Walk, step: DecisionStep) -> str | None:
    if step.question is None:
        return None
    steps, state = walk.outputs(), walk.run_state
    text = interpolate(step.question, args=None, context=walk.context, state=state, run_id=walk.run_id, steps=steps)
    return text if isinstance(text, str) else str(text)


def _previous(walk: Walk, key: str) -> Approved | None:
    """The approval that went stale, where the decision is asked anew for that."""
    return walk.state.step(key).expired


def _barred(walk: Walk, step: DecisionStep, shown_step: str | None) -> Iterator[Barred]:
    for rule in step.barred:
        match rule:
            case "initiator":
                assert walk.state.initiated_by is not None
                yield Barred(rule=rule, user=walk.state.initiated_by.id)
            case "reviser":
                yield Barred(rule=rule, user=None)
                if shown_step is not None:
                    for user in revisers_of(walk.state, walk.child, shown_step):
                        yield Barred(rule=rule, user=user)
            case _:
                for user in deciders_of(walk.state, walk.child, rule):
                    yield Barred(rule=rule, user=user)
