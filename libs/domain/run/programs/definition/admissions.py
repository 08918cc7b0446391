"""Admission: a definition with a concurrency key lets its runs work only as its limit allows."""

from contracts import ids
from contracts.base import JsonObject
from contracts.errors import Rejected
from contracts.events import admission as a
from contracts.events import run as e
from libs.domain.run.state import State
from libs.domain.run.walk import Walk
from libs.language.interpolation import interpolate
from libs.language.model import Concurrency


def key_of(concurrency: Concurrency, context: JsonObject) -> str:
    """The concurrency key of a run with this context.

    Raises:
        contracts.errors.Rejected: 422, the context lacks a value of the key's template.
    """
    key = interpolate(concurrency.key, args={}, context=context, state={}, run_id="")
    return key if isinstance(key, str) else str(key)


def admitted(walk: Walk) -> bool:
    """Start the run when it may; else ask for its key, or follow what became of its asking."""
    concurrency = walk.definition.concurrency
    if concurrency is None:
        walk.emit(e.RunStarted(at=walk.now))
        return True
    if walk.state.admission is None:
        try:
            request(walk, concurrency, working=False)
        except Rejected as error:
            walk.emit(e.RunCancelled(at=walk.now, reason=f"missing_data: the concurrency key: {error.message}"))
        return False
    match walk.evidence.verdict:
        case a.AdmissionGranted():
            walk.emit(e.RunStarted(at=walk.now))
            return True
        case a.AdmissionQueued() if not walk.state.held:
            admission = walk.state.admission
            walk.emit(e.RunHeld(at=walk.now, admission_id=admission.admission_id, key=admission.key))
        case a.AdmissionSuperseded(by=by):
            walk.emit(e.RunSuperseded(at=walk.now, by=by))
        case a.AdmissionRefused(reason=reason):
            walk.emit(e.RunCancelled(at=walk.now, reason=f"admission.full: {reason}"))
        case _:
            pass
    return False


def request(walk: Walk, concurrency: Concurrency, *, working: bool) -> None:
    """Ask for the run's key. One that works already does not wait for the answer: it is counted, whatever the limit.

    Raises:
        contracts.errors.Rejected: 422, the context lacks a value of the key's template.
    """
    key = key_of(concurrency, walk.context)
    group = walk.evidence.tenant_group
    assert group is not None
    walk.emit(
        e.RunAdmissionRequested(
            at=walk.now,
            admission_id=ids.admission(group, walk.state.definition_id, key),
            key=key,
            limit=concurrency.limit,
            mode=concurrency.mode,
            max_queued=concurrency.max_queued,
            working=working,
        )
    )


def holds_key(state: State, verdict: object) -> bool:
    """Whether a run that has not started may go on, as far as its concurrency key is concerned."""
    return state.started or state.admission is None or isinstance(verdict, a.AdmissionGranted)
