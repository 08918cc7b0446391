"""The sentences of the design that close a hole, where each is kept, and the tests that fail without it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Change:
    """Takes one part of a guard away: `text` stands exactly once in `file`, and `instead` goes in its place."""

    file: str
    text: str
    instead: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard. Where two stand behind each other, all changes together take it away. Every test fails then."""

    sentence: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]


_OWNER: Final = "libs/owner/owner.py"
_HELD: Final = "libs/owner/held.py"
_EFFECT: Final = "libs/domain/effect/decide.py"
_SETTLING: Final = "libs/domain/effect/settling.py"
_STATEMENTS: Final = "libs/eventstore/statements.py"
_TAIL: Final = "libs/eventstore/tail.py"
_CLAIMS: Final = "libs/eventstore/claims.py"

_ADMISSION: Final = "libs/domain/admission.py"

_SEALS: Final = "libs/audit/seals.py"
_SEALED: Final = "tests/service/test_audit_seals.py::"
_EFFECTS: Final = "tests/service/test_effects.py::"
_RACES: Final = "tests/conformance/test_store_races.py::"

GUARDS: Final[tuple[Guard, ...]] = (
    Guard(
        "`now` comes from the query that loaded the batch, never from the process",
        (Change(_HELD, "return load, known", "return replace(load, now=datetime.now(load.now.tzinfo)), known"),),
        (
            "tests/guards/test_clock.py::test_a_process_that_is_behind_moves_a_due_wake_on_and_does_not_loop",
            "tests/guards/test_clock.py::test_facts_are_dated_by_the_database",
        ),
    ),
    Guard(
        "The same command sent again gets the same answer: a lost reply is no conflict",
        (
            Change(
                _OWNER,
                "if not held[item.stream_id].done.isdisjoint(told(item.actor, item.causation)):",
                "if False:",
            ),
            Change("libs/domain/decision/answering.py", "return command.command_id in state.heard", "return False"),
        ),
        ("tests/service/test_decisions.py::test_the_same_command_sent_to_both_replicas_gets_the_same_reply",),
    ),
    Guard(
        "State remembers the command that decided, whatever its decider says when it comes again",
        (
            Change(
                _OWNER,
                "if not held[item.stream_id].done.isdisjoint(told(item.actor, item.causation)):",
                "if False:",
            ),
        ),
        (
            "tests/guards/test_lost_reply.py::"
            "test_the_same_command_is_known_again_by_every_replica_and_another_is_refused",
            "tests/guards/test_lost_reply.py::test_a_command_is_not_carried_out_again_after_what_it_did_was_undone",
        ),
    ),
    Guard(
        "Another command than the one that decided gets the conflict",
        (Change("libs/domain/decision/answering.py", "return command.command_id in state.heard", "return True"),),
        ("tests/service/test_decisions.py::test_of_two_simultaneous_answers_one_wins_and_the_other_hears_who",),
    ),
    Guard(
        "One duplicate trigger key in a batch leaves the innocent recorded",
        (
            Change(
                _STATEMENTS,
                "on conflict (stream_id) do nothing returning stream_id)",
                "returning stream_id)",
            ),
        ),
        ("tests/guards/test_triggers.py::test_one_run_that_exists_leaves_199_others_recorded",),
    ),
    Guard(
        "An effect's pending requires a run that is neither cancelled nor suspended",
        (
            Change(
                _EFFECT,
                "return facts(pending, guards=guards)",
                "return facts(pending)",
            ),
        ),
        (
            "tests/guards/test_cancel_race.py::test_nothing_is_announced_after_a_cancel_was_answered",
            _EFFECTS + "test_a_cancelled_run_writes_nothing",
        ),
    ),
    Guard(
        "What was announced is never announced again: it may have been done",
        (
            Change(
                _EFFECT,
                'if state.status != "declared":\n        return NOTHING\n    assert',
                'if state.status not in {"declared", "pending"}:\n        return NOTHING\n    assert',
            ),
            Change(
                "services/effects/ledger.py",
                'if fold(s).status == "declared"}',
                'if fold(s).status in {"declared", "pending"}}',
            ),
        ),
        ("tests/chaos/test_kills.py::test_the_write_path_by_force",),
    ),
    Guard(
        "A guard is locked: it waits behind an uncommitted change and is judged by it",
        (Change(_STATEMENTS, "       for share of h) held)", "       ) held)"),),
        (_RACES + "test_a_guard_waits_behind_an_uncommitted_change_and_is_judged_by_it",),
    ),
    Guard(
        "An answer requires its run open",
        (
            Change(
                "libs/domain/decision/answering.py",
                'guards=(Guard("run", run_id, lifecycle.RUN_ACTIVE),), blobs=command.blobs)',
                "blobs=command.blobs)",
            ),
        ),
        ("tests/service/test_decisions.py::test_no_answer_is_recorded_after_the_cancel_that_it_raced",),
    ),
    Guard(
        "A claim is guarded by its run being open",
        (Change(_CLAIMS, "r.state = any($4::text[])", "$4::text[] is not null"),),
        (_RACES + "test_a_claim_waits_behind_an_uncommitted_suspension_and_drops_the_work",),
    ),
    Guard(
        "Readers of the whole history stop below the oldest open transaction",
        (
            Change(
                _TAIL,
                "and (e.era < (select max(era) from eras) or e.xid < pg_snapshot_xmin(pg_current_snapshot()))",
                "",
            ),
        ),
        (_RACES + "test_the_tail_stops_below_an_open_transaction",),
    ),
    Guard(
        "Readers order by (era, xid, position): a cursor on position alone loses facts",
        (
            Change(
                _TAIL,
                "where (e.era, e.xid, e.position) > ($1::int, $2::text::xid8, $3::bigint)",
                "where e.position > $3::bigint and $1::int >= 0 and $2::text is not null",
            ),
            Change(_TAIL, "order by e.era, e.xid, e.position limit", "order by e.position limit"),
        ),
        ("tests/guards/test_tail_order.py::test_a_fact_of_a_lower_position_that_commits_later_is_read",),
    ),
    Guard(
        "A woken owner always moves its wake",
        (
            Change(
                _OWNER,
                "moves.append((item.stream_id, before.version, self._later(before.state, now)))",
                "pass",
            ),
        ),
        ("tests/conformance/test_owner.py::test_a_due_stream_is_moved_on_whatever_comes_of_it",),
    ),
    Guard(
        "A woken owner moves its wake on failure too",
        (Change(_OWNER, "        if due:\n", "        if due and False:\n"),),
        ("tests/conformance/test_owner.py::test_a_due_stream_is_moved_on_whatever_comes_of_it",),
    ),
    Guard(
        "A call that has not started within the limit after its announcement is not made",
        (
            Change(
                "services/effects/ledger.py",
                "if monotonic() - call.announced_at > self._start_within.total_seconds():",
                "if False:",
            ),
        ),
        (
            "tests/guards/test_frozen.py::test_a_process_that_was_frozen_before_its_call_does_not_make_it",
            _EFFECTS + "test_a_call_that_did_not_start_in_time_is_not_made",
        ),
    ),
    Guard(
        "What was announced is not doubted before the call's timeout plus a margin",
        (Change(_EFFECT, " or not is_over(state, now):", ":"),),
        (_EFFECTS + "test_what_a_crash_left_pending_is_in_doubt_once_no_call_can_be_under_way",),
    ),
    Guard(
        "No verdict before the call's timeout plus a margin",
        (Change(_SETTLING, "if not is_over(state, now):", "if False:"),),
        ("tests/unit/test_effect_settling.py::test_no_verdict_before_the_call_is_over_everywhere",),
    ),
    Guard(
        "What a look found says nothing of a call that was made since",
        (
            Change(
                _SETTLING,
                "(command.claim, command.look) != (state.claim, state.looks + 1)",
                "False",
            ),
        ),
        ("tests/unit/test_effect_settling.py::test_a_look_at_another_call_or_from_before_another_look_says_nothing",),
    ),
    Guard(
        "A reply that never came is in doubt, never connector_unavailable",
        (
            Change(
                "services/effects/outcomes.py",
                "return Doubt(claim=claim, reason=reason[:MESSAGE_CHARS_MAX])",
                'return Fail(claim=claim, failure_class="connector_unavailable", message=reason)',
            ),
        ),
        (_EFFECTS + "test_an_answer_that_never_came_is_in_doubt_and_never_called_again",),
    ),
    Guard(
        "A call that was sent when the service stopped is in doubt",
        (
            Change(
                "services/effects/ledger.py",
                "return Doubt(claim=call.claim, reason=reason) if call.sent else _not_sent(call, reason)",
                "return _not_sent(call, reason)",
            ),
        ),
        (_EFFECTS + "test_a_service_that_stops_in_mid_call_says_that_it_does_not_know",),
    ),
    Guard(
        "An effect's report with an old claim is refused",
        (Change(_EFFECT, "if command.claim != state.claim:", "if False:"),),
        ("tests/unit/test_effect.py::test_another_call_may_not_report",),
    ),
    Guard(
        "An attempt's report with an old claim is refused",
        (
            Change("libs/domain/attempt.py", "if claim is None or claim != state.claim:", "if claim is None:"),
            Change(_STATEMENTS, '"(excluded.gate is null or h.claim = excluded.gate)"', '"true"'),
        ),
        ("tests/service/test_runner_leases.py::test_a_late_report_during_anothers_execution_writes_nothing",),
    ),
    Guard(
        "Stream ids are locked in order, or writers deadlock",
        (Change(_STATEMENTS, "   order by i.stream_id\n  on conflict", "  on conflict"),),
        (_RACES + "test_heads_are_locked_in_order_of_their_ids",),
    ),
    Guard(
        "A step times out only while its decision was not answered",
        (
            Change(
                "libs/domain/run/programs/definition/timeouts.py",
                'walk.guards.append(Guard("decision", open_id, UNANSWERED))',
                "pass",
            ),
        ),
        ("tests/unit/test_run_decisions.py::test_a_timeout_counts_only_while_nothing_has_come",),
    ),
    Guard(
        "After a restore nobody appends who knew the record before it",
        (
            Change(
                _STATEMENTS,
                " and e.began_at = timestamptz '{era.began_at.isoformat()}')",
                " or true)",
            ),
        ),
        ("tests/conformance/test_store_eras.py::test_who_knew_an_earlier_era_appends_nothing",),
    ),
    Guard(
        "After a restore each effect of an older run starts in doubt",
        (Change(_EFFECT, "if command.restored:", "if False:"),),
        (_EFFECTS + "test_after_a_restore_an_effect_of_an_older_run_begins_in_doubt",),
    ),
    Guard(
        "A new stream whose expected version is not zero is refused",
        (
            Change(
                _STATEMENTS,
                'f"coalesce(({version}), 0) = i.version - i.appended"',
                '"true"',
            ),
        ),
        ("tests/conformance/test_event_store_append.py::test_a_new_stream_expects_zero",),
    ),
    Guard(
        "What the sweep publishes again has a new message id: the dedupe window swallows an old one",
        (
            Change(
                "services/scheduler/sweep.py",
                'again = f"{token.era}.{token.xid}.{mint()}"',
                'again = f"{token.era}.{token.xid}" if mint() else ""',
            ),
        ),
        ("tests/service/test_scheduler.py::test_what_is_published_again_has_a_new_message_id",),
    ),
    Guard(
        "The history refuses change, even to its owner",
        (
            Change(
                "libs/postgres/migrations/0001_event_store.sql",
                "create trigger append_only before update or delete on workflow_history",
                "create trigger append_only before update on workflow_history",
            ),
        ),
        ("tests/conformance/test_store_record.py::test_history_is_append_only_even_for_its_owner",),
    ),
    Guard(
        "A delivery is not read before its signature was judged",
        (
            Change(
                "services/api/webhooks.py",
                "if not any(verify_signature(raw, header, secret.encode()) for secret in known):",
                "if not any(header for _ in known) and not known:",
            ),
        ),
        ("tests/service/test_api_webhooks.py::test_what_is_not_authentic_is_refused_and_stores_nothing",),
    ),
    Guard(
        "Another tenant group's things do not exist",
        (
            Change(
                _OWNER,
                "if group is not None and item.tenant_group is not None and group != item.tenant_group:",
                "if False:",
            ),
        ),
        ("tests/conformance/test_owner.py::test_another_groups_stream_does_not_exist",),
    ),
    Guard(
        "Who is let in under a concurrency key is open in the same statement, or nobody would give the place back",
        (
            Change(
                _ADMISSION,
                '= Guard("run", run_id, lifecycle.RUN_OPEN)',
                "= Guard('run', run_id, frozenset(lifecycle.RUN))",
            ),
        ),
        ("tests/service/test_admission_keys.py::test_a_run_that_ends_while_it_is_let_in_gets_no_place",),
    ),
    Guard(
        "Who is let go of a concurrency key is over in the same statement, or it would work beside the next",
        (
            Change(
                _ADMISSION,
                '= Guard("run", run_id, lifecycle.RUN_OVER)',
                "= Guard('run', run_id, frozenset(lifecycle.RUN))",
            ),
        ),
        ("tests/service/test_admission_keys.py::test_a_run_that_goes_on_while_it_is_let_go_keeps_its_place",),
    ),
    Guard(
        "A wait that opens looks back, once it is committed, over the events that came before",
        (
            Change(
                "services/ingest/waits.py",
                "if fits is not None:\n                    found",
                "if False:\n                    found",
            ),
        ),
        ("tests/service/test_ingest_waits.py::test_an_event_that_came_before_is_found_within_the_window",),
    ),
    Guard(
        "An event that was committed looks for waits that are still opening, too",
        (
            Change(
                "services/ingest/waits.py",
                "elif takes(state, offer.arrival):",
                'elif state.status == "open" and takes(state, offer.arrival):',
            ),
        ),
        ("tests/service/test_ingest_waits.py::test_an_event_that_comes_while_the_wait_opens_is_given_to_it",),
    ),
    Guard(
        "Only what can be called at once is announced",
        (Change("services/effects/turns.py", "if self._held_by(server, busy[server]) is None", "if True"),),
        (_EFFECTS + "test_only_what_is_called_at_once_is_announced",),
    ),
    Guard(
        "An ask that is repeated has passed the deadline of the one before it: a refusal stays one",
        (
            Change(
                "libs/process/asks.py",
                "deadline = command.deadline - patience * left",
                "deadline = command.deadline",
            ),
        ),
        ("tests/simulation/test_found.py::test_what_is_asked_again_finds_late_what_was_asked_before",),
    ),
    Guard(
        "A lost race is asked again by the door: it is nobody's conflict",
        (
            Change(
                "libs/process/again.py", "if not error.again or monotonic() + pause >= until:", "if True:  # at once"
            ),
        ),
        ("tests/service/test_api_contended.py::test_what_lost_to_others_is_asked_again_with_its_id",),
    ),
    Guard(
        "The loss of the bus looks at the keys of which somebody may have ended",
        (Change("services/scheduler/incarnations.py", '    "admission": frozenset({"busy"}),\n', ""),),
        ("tests/service/test_admission_keys.py::test_a_lost_bus_gives_the_place_of_a_run_that_ended_to_the_next_one",),
    ),
    Guard(
        "A seal covers only what no transaction can write below any more",
        (
            Change(
                _SEALS,
                "pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin",
                "pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmin",
            ),
        ),
        (_SEALED + "test_what_a_transaction_may_still_write_below_is_left_to_the_next_seal",),
    ),
    Guard(
        "Two schedulers make one seal: its number is the gate",
        (Change(_SEALS, " on conflict (number) do nothing returning number),", " returning number),"),),
        (_SEALED + "test_two_who_seal_at_once_make_one_seal",),
    ),
    Guard(
        "Nothing is sealed over leaves that do not add up to the last root",
        (
            Change(
                _SEALS,
                "if self._edge.size != size or (last is not None and self._edge.root() != last.root):",
                "if False:",
            ),
        ),
        (_SEALED + "test_nothing_is_sealed_over_leaves_that_were_changed",),
    ),
    Guard(
        "A cut tail and a vanished stream show: what was sealed is looked for in the history",
        (Change("libs/audit/sealed.py", "findings += await _of_leaves(pool)", "findings += []"),),
        (
            "tests/service/test_audit_verify.py::test_a_tail_that_was_cut_with_its_head_row_shows",
            "tests/service/test_audit_verify.py::test_a_stream_that_vanished_without_a_trace_shows",
        ),
    ),
    Guard(
        "An outage makes no dead letter",
        (
            Change(
                "libs/process/letters.py",
                "if isinstance(error, Rejected | Stopping) or _of_an_outage(error):",
                "if isinstance(error, Rejected | Stopping):",
            ),
        ),
        ("tests/service/test_dead_letters.py::test_an_outage_or_a_drain_never_makes_a_letter",),
    ),
    Guard(
        "A dead letter that fails again while it is sent again is not forgotten",
        (
            Change(
                "libs/eventstore/letters.py", '" where l.id = d.id and l.last_at = d.last_at",', '" where l.id = d.id",'
            ),
        ),
        ("tests/service/test_dead_letters.py::test_letters_are_kept_once_with_the_tenant_group_of_their_stream",),
    ),
)
