"""The closed sets of states. The edges between them are one table, `libs.domain.lifecycle`."""

from typing import Literal

RunState = Literal[
    "created",
    "running",
    "waiting_decision",
    "waiting_event",
    "waiting_timer",
    "completed",
    "failed",
    "cancelled",
    "suspended",
    "superseded",
]
RunOutcome = Literal["succeeded", "rejected"]
StepState = Literal[
    "pending",  # not reached yet
    "queued",  # an attempt is open: waiting for a runner, or running
    "waiting",  # a decision is open
    "writing",  # an effect is open
    "retrying",  # waiting for the backoff to pass
    "succeeded",
    "failed",
    "cancelled",
]
AttemptState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
DecisionState = Literal["open", "answered", "withdrawn"]
DecisionOutcome = Literal["approve", "request_changes", "reject", "cancel"]
EffectState = Literal["declared", "pending", "succeeded", "failed", "in_doubt", "cancelled"]
InboundState = Literal["received", "routed"]
ArtifactState = Literal["proposed", "approved", "executed"]
StepKind = Literal["agent", "decision", "parallel", "write"]
TriggerKind = Literal["manual", "event"]
FailureClass = Literal[
    "default",
    "connector_unavailable",
    "budget_exceeded",
    "output_invalid",
    "gate_failed",
    "timeout",
    "missing_data",
]
FailureAction = Literal["retry_backoff", "suspend", "fail"]

__all__ = [
    "ArtifactState",
    "AttemptState",
    "DecisionOutcome",
    "DecisionState",
    "EffectState",
    "FailureAction",
    "FailureClass",
    "InboundState",
    "RunOutcome",
    "RunState",
    "StepKind",
    "StepState",
    "TriggerKind",
]
