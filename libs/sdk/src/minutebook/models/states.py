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
    "delayed",  # waiting for the moment that its `wait` names
    "queued",  # an attempt is open: waiting for a runner, or running
    "waiting",  # on a person or an event: a decision, a manual task or a wait is open
    "writing",  # an effect is open
    "retrying",  # waiting for the backoff to pass
    "succeeded",
    "failed",
    "cancelled",
    "skipped",  # passed over: what it was to follow timed out
]
AttemptState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
DecisionState = Literal["open", "answered", "withdrawn"]
DecisionOutcome = Literal["approve", "request_changes", "reject", "cancel", "answer"]
"""`answer` is that of a question alone, which has no artefact to judge."""
EffectState = Literal["declared", "pending", "succeeded", "failed", "in_doubt", "cancelled"]
SettleVerdict = Literal["landed", "not_landed", "try_again"]
NoticeState = Literal["due", "sending", "sent", "failed", "in_doubt"]
NoticeAbout = Literal[
    "decision.opened",
    "decision.reminded",
    "decision.escalated",
    "effect.in_doubt",
    "run.suspended",
    "run.failed",
    "source.failing",
]
ChannelKind = Literal["webhook", "email", "slack", "teams"]
InboundState = Literal["received", "routed"]
WaitState = Literal["opening", "open", "matched", "closed"]
ScheduleState = Literal["active", "paused", "retired"]
AdmissionState = Literal["idle", "busy"]
ArtifactState = Literal["proposed", "approved", "executed"]
StepKind = Literal["agent", "decision", "manual", "event", "gate", "parallel", "write"]
TriggerKind = Literal["manual", "event", "schedule"]
FailureClass = Literal[
    "default",
    "connector_unavailable",
    "budget_exceeded",
    "output_invalid",
    "gate_failed",
    "timeout",
    "missing_data",
]
FailureAction = Literal["retry_backoff", "suspend", "escalate", "fail"]

__all__ = [
    "AdmissionState",
    "ArtifactState",
    "AttemptState",
    "ChannelKind",
    "DecisionOutcome",
    "DecisionState",
    "EffectState",
    "FailureAction",
    "FailureClass",
    "InboundState",
    "NoticeAbout",
    "NoticeState",
    "RunOutcome",
    "RunState",
    "ScheduleState",
    "SettleVerdict",
    "StepKind",
    "StepState",
    "TriggerKind",
    "WaitState",
]
