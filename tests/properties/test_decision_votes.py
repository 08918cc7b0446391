"""Whatever people send to a quorum, in whatever order: its outcome follows the rules, told a second and simpler way."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from hypothesis import event, given, settings
from hypothesis import strategies as st

from contracts.base import ActsFor, Principal
from contracts.errors import Rejected
from contracts.events import decision as e
from contracts.events.run import RoleBinding
from libs.canonical import blob
from libs.domain.core import Decided
from libs.domain.decision import CATEGORY, Answer, State, decide, may_answer
from tests.unit.test_decision import NOW, opened

PEOPLE: Final = [UUID(int=n) for n in range(1, 7)]
GROUP: Final = UUID(int=100)


@dataclass(frozen=True)
class Rules:
    """Who is asked and what is needed."""

    need: int
    security: int
    distinct: bool
    veto: Any
    leads: frozenset[UUID]
    guards: frozenset[UUID]
    barred: frozenset[UUID]
    reviser_barred: bool
    lets: dict[UUID, UUID]

    @property
    def voters(self) -> frozenset[UUID]:
        return self.leads | self.guards

    def enough(self, approving: set[UUID]) -> bool:
        return len(approving) >= self.need and len(approving & self.guards) >= self.security


@dataclass
class Naive:
    """The votes that count: (whose it is, who sent it, what it says)."""

    rules: Rules
    votes: list[tuple[UUID, UUID, str]] = field(default_factory=list)
    revisers: set[UUID] = field(default_factory=set)

    def barred(self, person: UUID) -> bool:
        return person in self.rules.barred or (self.rules.reviser_barred and person in self.revisers)

    def as_whom(self, sender: UUID) -> UUID | None:
        """Whose vote one who sends one would cast; None where it is refused."""
        if self.barred(sender) or (self.rules.distinct and any(by == sender for _, by, _ in self.votes)):
            return None
        for person in (sender, self.rules.lets.get(sender)):
            cast = {whose for whose, _, _ in self.votes}
            if person in self.rules.voters and person not in cast and not self.barred(person):
                return person
        return None

    def ended(self) -> str | None:
        """What the votes come to; None while they come to nothing."""
        approving = {whose for whose, _, said in self.votes if said == "approve"}
        against = [said for _, _, said in self.votes if said != "approve"]
        if self.rules.veto == "any" and against:
            return against[0]
        if self.rules.enough(approving):
            return "approve"
        away = {whose for whose, _, _ in self.votes}
        if self.rules.distinct:
            away |= {by for _, by, _ in self.votes}
        could = {person for person in self.rules.voters - away if not self.barred(person)}
        if self.rules.veto == "any" or self.rules.enough(approving | could) or not against:
            return None
        counts = Counter(against).most_common()
        tied = [said for said, count in counts if count == counts[0][1]]
        return tied[0] if len(tied) == 1 else "reject"


people = st.sampled_from(PEOPLE)
rules = st.builds(
    Rules,
    need=st.integers(1, 4),
    security=st.integers(0, 2),
    distinct=st.booleans(),
    veto=st.sampled_from(["any", "none"]),
    leads=st.frozensets(people, min_size=1),
    guards=st.frozensets(people),
    barred=st.frozensets(people, max_size=2),
    reviser_barred=st.booleans(),
    lets=st.dictionaries(people, people, max_size=3).map(lambda lets: {a: b for a, b in lets.items() if a != b}),
)
sent = st.lists(
    st.tuples(people, st.sampled_from(["approve", "approve", "request_changes", "reject", "cancel"]), st.booleans()),
    max_size=14,
)


def opened_by(its: Rules) -> State:
    groups = (e.QuorumGroup(role="security", binding=RoleBinding(), need=its.security),) if its.security else ()
    bars = [e.Barred(rule="initiator", user=person) for person in sorted(its.barred)]
    if its.reviser_barred:
        bars.append(e.Barred(rule="reviser", user=None))
    return CATEGORY.fold(
        (
            opened(
                role="lead",
                outcomes=("approve", "request_changes", "reject", "cancel"),
                quorum=e.Quorum(need=its.need, distinct=its.distinct, groups=groups, veto=its.veto),
                barred=tuple(bars),
            ),
            e.DecisionSeated(
                at=NOW,
                reason="opened",
                seats=(
                    e.Seat(role="lead", voters=tuple(its.leads)),
                    e.Seat(role="security", voters=tuple(its.guards)),
                ),
            ),
        )
    )


def principal(its: Rules, person: UUID) -> Principal:
    lends = its.lets.get(person)
    acts_for = (ActsFor(id=lends, email=f"{lends}", projects=frozenset({"core"})),) if lends is not None else ()
    return Principal(
        kind="user",
        id=person,
        name=f"{person}",
        tenant_group=GROUP,
        tenant=GROUP,
        projects=frozenset({"core"}),
        acts_for=acts_for,
    )


def judged(command: Answer, state: State) -> tuple[Decided | None, str]:
    """What follows from an answer, or the code of what is against it."""
    try:
        return decide(command, state, NOW), ""
    except Rejected as error:
        return None, error.code


@settings(max_examples=400, deadline=None)
@given(its=rules, commands=sent)
def test_the_outcome_follows_the_rules(its: Rules, commands: list[tuple[UUID, Any, bool]]) -> None:
    state, naive = opened_by(its), Naive(its)
    for number, (sender, outcome, revises) in enumerate(commands):
        revised, content = blob({"title": number})
        revises = revises and outcome == "approve"
        by = principal(its, sender)
        command = Answer(
            command_id=UUID(int=1_000 + number),
            outcome=outcome,
            comment=None,
            revised=revised if revises else None,
            blobs={revised.digest: content} if revises else {},
            principal=by,
        )
        whose = naive.as_whom(sender)
        assert may_answer(by, state) == (whose is not None)
        decided, code = judged(command, state)
        if decided is None:
            assert whose is None or code == "decision.revision"
            event(code)
            continue
        assert whose is not None
        state = CATEGORY.fold(decided.events, state)
        again = decide(command, state, NOW)
        assert not again.events, "the same command again says nothing"
        if revises:
            naive.votes.clear()
            naive.revisers |= {sender, whose}
        if not (revises and its.reviser_barred):
            naive.votes.append((whose, sender, outcome))
        counted = [(ballot.person, ballot.by.id, ballot.outcome) for ballot in state.ballots]
        assert counted == naive.votes, "no vote is lost or counted twice, and none of whom has no vote"
        assert (state.outcome if state.status == "answered" else None) == naive.ended()
        if state.status == "answered":
            event(f"ended as {state.outcome}")
            return
    event("open")
