"""One suite for every executor, against the scripted model; then what only the Anthropic loop does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from contracts.base import JsonObject
from contracts.requests import AttemptRequest
from libs.canonical import blob
from libs.config import Secrets, Settings
from libs.pricing import PriceTable
from services.dev.http import serve
from services.dev.scripted_model import ScriptedModel, scripted_model
from services.dev.scripts import Rule
from services.runner.executors import AnthropicExecutor, EchoExecutor, Executor, Failure, Produced, Scope
from services.runner.executors.fit import misfits
from tests.support.messages import Answer, Provider, Refusal

KEY = "sk-test-5f0c2b"
SCOPE = Scope(attempt_id=uuid4(), claim=uuid4())
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"context": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}},
    "required": ["context"],
}
TITLE: JsonObject = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def settings(url: str, **changes: Any) -> Settings:
    return Settings(
        postgres_dsn="unused", nats_url="unused", anthropic_base_url=url, anthropic_model="claude-sonnet-5-5", **changes
    )


def request(**changes: Any) -> AttemptRequest:
    whole = AttemptRequest(
        run_id=uuid4(),
        definition_id="release-notes",
        step="draft",
        round=1,
        attempt=1,
        prompt="Write the notes.",
        context={"key": "MB-1"},
        output_schema=None,
        model=None,
        budget_microdollars=None,
        deadline_seconds=30.0,
    )
    return whole.model_copy(update=changes)


def secrets(**values: str) -> Secrets:
    return Secrets(overrides=values or {"anthropic_api_key": KEY})


@pytest.fixture
async def model() -> AsyncIterator[tuple[ScriptedModel, str]]:
    scripted = scripted_model({})
    running = await serve(scripted.app)
    yield scripted, running.url
    await running.stop()


@pytest.fixture(params=["echo", "anthropic"])
async def executor(request: pytest.FixtureRequest, model: tuple[ScriptedModel, str]) -> AsyncIterator[Executor]:
    made: Executor = (
        EchoExecutor() if request.param == "echo" else AnthropicExecutor(settings(model[1]), secrets(), retries=0)
    )
    yield made
    await made.close()


class TestEveryExecutor:
    async def test_has_a_name_that_a_subject_can_hold(self, executor: Executor) -> None:
        assert executor.name
        assert executor.name.replace("_", "").isalnum()

    async def test_produces_an_object_that_can_be_kept(self, executor: Executor) -> None:
        outcome = await executor.execute(request(), scope=SCOPE)

        assert isinstance(outcome, Produced)
        assert isinstance(outcome.output, dict)
        assert blob(outcome.output)

    async def test_produces_only_what_fits_the_schema(self, executor: Executor) -> None:
        outcome = await executor.execute(request(output_schema=SCHEMA), scope=SCOPE)

        assert isinstance(outcome, Produced)
        assert misfits(outcome.output, SCHEMA) is None

    async def test_never_hands_on_a_misfit(self, executor: Executor, model: tuple[ScriptedModel, str]) -> None:
        model[0].scripts = {"release-notes": [Rule(output={"context": {}})]}

        outcome = await executor.execute(request(context={}, output_schema=SCHEMA), scope=SCOPE)

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "output_invalid"
        assert "'key' is a required property" in outcome.message

    async def test_carries_out_many_attempts_side_by_side(self, executor: Executor) -> None:
        outcomes = await asyncio.gather(*(executor.execute(request(), scope=SCOPE) for _ in range(10)))

        assert all(isinstance(outcome, Produced) for outcome in outcomes)

    async def test_counts_what_it_spent_in_whole_numbers(self, executor: Executor) -> None:
        outcome = await executor.execute(request(), scope=SCOPE)

        assert isinstance(outcome.cost_microdollars, int)
        assert (outcome.cost_microdollars > 0) == (outcome.usage.output_tokens > 0) == (outcome.turns > 0)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    running = Provider()
    await running.start()
    yield running
    await running.stop()


async def execute(
    provider: Provider,
    asked: AttemptRequest,
    *answers: Answer | Refusal,
    prices: PriceTable | None = None,
    retries: int = 0,
    **changes: Any,
) -> Produced | Failure:
    provider.answers.extend(answers)
    executor = AnthropicExecutor(settings(provider.url, **changes), secrets(), prices=prices, retries=retries)
    try:
        return await executor.execute(asked, scope=SCOPE)
    finally:
        await executor.close()


class TestTheAnthropicLoop:
    async def test_says_for_whom_it_calls_and_with_the_key_of_the_moment(self, provider: Provider) -> None:
        asked = request(output_schema=TITLE, round=2, attempt=3)

        await execute(provider, asked, Answer('{"title": "One"}'))

        (headers,) = provider.headers
        assert KEY in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
        assert headers["x-minutebook-scope-workflow"] == str(asked.run_id)
        assert headers["x-minutebook-scope-definition"] == "release-notes"
        assert headers["x-minutebook-scope-step"] == "draft"
        assert headers["x-minutebook-scope-round"] == "2"
        assert headers["x-minutebook-scope-attempt"] == "3"

    async def test_asks_for_structured_output_as_a_stream(self, provider: Provider) -> None:
        await execute(provider, request(output_schema=TITLE), Answer('{"title": "One"}'))

        (body,) = provider.requests
        assert body["stream"] is True
        assert body["model"] == "claude-sonnet-5-5"
        assert body["output_config"]["format"]["type"] == "json_schema"
        assert body["output_config"]["format"]["schema"]["required"] == ["title"]

    async def test_the_step_may_name_the_model(self, provider: Provider) -> None:
        outcome = await execute(provider, request(model="claude-opus-4-5"), Answer("{}"))

        assert provider.requests[0]["model"] == outcome.model == "claude-opus-4-5"

    async def test_a_model_that_will_be_retired_is_still_called(self, provider: Provider) -> None:
        outcome = await execute(provider, request(model="claude-opus-4-1"), Answer("{}"))

        assert isinstance(outcome, Produced)

    async def test_shows_a_misfit_once_and_adds_up_both_calls(self, provider: Provider) -> None:
        outcome = await execute(
            provider, request(output_schema=TITLE), Answer('{"titel": "One"}'), Answer('{"title": "One"}')
        )

        assert isinstance(outcome, Produced)
        assert outcome.output == {"title": "One"}
        assert (outcome.turns, outcome.usage.input_tokens, outcome.usage.output_tokens) == (2, 200, 100)
        assert outcome.cost_microdollars == 200 * 2 + 100 * 10
        user, assistant, correction = provider.requests[1]["messages"]
        assert user["content"] == "Write the notes."
        assert assistant == {"role": "assistant", "content": '{"titel": "One"}'}
        assert "'title' is a required property" in correction["content"]

    @pytest.mark.parametrize(
        "text, why",
        [
            ('{"titel": 1}', "'title' is a required property"),
            ('{"title": 1}', "title: 1 is not of type 'string'"),
            ('["title"]', "not a JSON object"),
            ("Here it is.", "not JSON"),
            ('{"title": "a", "title": "b"}', "repeated"),
            ('{"title": "a\\u0000"}', "NUL"),
            ("", "not JSON"),
        ],
    )
    async def test_a_second_misfit_is_output_invalid_with_the_reason(
        self, provider: Provider, text: str, why: str
    ) -> None:
        outcome = await execute(provider, request(output_schema=TITLE), Answer(text), Answer(text))

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "output_invalid"
        assert why in outcome.message
        assert outcome.turns == 2

    async def test_makes_no_more_calls_than_allowed(self, provider: Provider) -> None:
        outcome = await execute(provider, request(output_schema=TITLE), Answer("{}"), model_calls_max=1)

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "output_invalid"
        assert len(provider.requests) == 1

    async def test_takes_an_object_out_of_its_fence(self, provider: Provider) -> None:
        outcome = await execute(provider, request(), Answer('```json\n{"title": "One"}\n```'))

        assert isinstance(outcome, Produced)
        assert outcome.output == {"title": "One"}

    async def test_prose_without_a_schema_is_kept_as_text(self, provider: Provider) -> None:
        outcome = await execute(provider, request(), Answer("All is well."))

        assert isinstance(outcome, Produced)
        assert outcome.output == {"text": "All is well."}

    async def test_a_schema_that_refers_elsewhere_fetches_nothing(self, provider: Provider) -> None:
        remote: JsonObject = {"type": "object", "properties": {"title": {"$ref": f"{provider.url}/schema.json"}}}

        outcome = await execute(
            provider, request(output_schema=remote), Answer('{"title": "a"}'), Answer('{"title": "a"}')
        )

        assert isinstance(outcome, Failure)
        assert "does not contain" in outcome.message

    @pytest.mark.parametrize(
        "answer, failure_class, why",
        [
            (Answer("{", stop_reason="max_tokens"), "output_invalid", "MINUTEBOOK_MODEL_OUTPUT_TOKENS_MAX"),
            (
                Answer(stop_reason="refusal", stop_details={"type": "refusal", "explanation": "harmful"}),
                "output_invalid",
                "the model refused: harmful",
            ),
            (Answer(stop_reason="refusal"), "output_invalid", "gave no reason"),
            (Answer(stop_reason="model_context_window_exceeded"), "default", "context"),
            (Answer(stop_reason="pause_turn"), "output_invalid", "pause_turn"),
            (Answer("{", cut=True), "connector_unavailable", "cut"),
            (Answer("{", error="overloaded_error"), "connector_unavailable", "overloaded_error"),
            (Refusal(429, "rate_limit_error"), "connector_unavailable", "429"),
            (Refusal(500), "connector_unavailable", "500"),
            (Refusal(529, "overloaded_error"), "connector_unavailable", "529"),
            (Refusal(400, "invalid_request_error", "prompt is too long"), "default", "prompt is too long"),
            (Refusal(404, "not_found_error", "model: claude-x"), "default", "model: claude-x"),
            (Refusal(401, "authentication_error", f"invalid {KEY}"), "connector_unavailable", "refused the key"),
            (Refusal(403, "permission_error", f"invalid {KEY}"), "connector_unavailable", "refused the key"),
        ],
    )
    async def test_trouble_has_a_class_and_words(
        self, provider: Provider, answer: Answer | Refusal, failure_class: str, why: str
    ) -> None:
        outcome = await execute(provider, request(output_schema=TITLE), answer)

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == failure_class
        assert why in outcome.message
        assert KEY not in outcome.message
        assert outcome.turns == 1

    async def test_what_a_broken_answer_used_is_counted(self, provider: Provider) -> None:
        outcome = await execute(provider, request(), Answer("{", cut=True, input_tokens=1_000))

        assert outcome.usage.input_tokens == 1_000
        assert outcome.cost_microdollars >= 2_000

    async def test_the_client_repeats_a_call_that_met_passing_trouble(self, provider: Provider) -> None:
        outcome = await execute(provider, request(), Refusal(529, "overloaded_error"), Answer("{}"), retries=1)

        assert isinstance(outcome, Produced)

    async def test_a_provider_that_is_away_is_unavailable(self) -> None:
        executor = AnthropicExecutor(settings("http://127.0.0.1:1"), secrets(), retries=0)

        outcome = await executor.execute(request(), scope=SCOPE)
        await executor.close()

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "connector_unavailable"

    async def test_without_a_key_it_says_where_it_looked(self, provider: Provider, tmp_path: Any) -> None:
        executor = AnthropicExecutor(settings(provider.url), Secrets(tmp_path), retries=0)

        outcome = await executor.execute(request(), scope=SCOPE)
        await executor.close()

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "connector_unavailable"
        assert "MINUTEBOOK_SECRET_ANTHROPIC_API_KEY" in outcome.message
        assert not provider.requests

    async def test_a_rotated_key_counts_from_the_next_attempt(self, provider: Provider, tmp_path: Any) -> None:
        executor = AnthropicExecutor(settings(provider.url), Secrets(tmp_path), retries=0)
        for key in ("the first key", "the second key"):
            (tmp_path / "anthropic_api_key").write_text(f"{key}\n")
            provider.answers.append(Answer("{}"))
            assert isinstance(await executor.execute(request(), scope=SCOPE), Produced)
        await executor.close()

        sent = [headers["authorization"] for headers in provider.headers]
        assert sent == ["Bearer the first key", "Bearer the second key"]

    async def test_ends_at_its_deadline_and_keeps_what_it_spent(self, model: tuple[ScriptedModel, str]) -> None:
        model[0].scripts = {"release-notes": [Rule(output={}, delay_seconds=30)]}
        executor = AnthropicExecutor(settings(model[1]), secrets(), retries=0)

        outcome = await executor.execute(request(deadline_seconds=0.2), scope=SCOPE)
        await executor.close()

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "timeout"
        assert "0.2 s" in outcome.message
        assert outcome.turns == 1


class TestBudgets:
    async def test_a_model_without_a_price_is_refused_under_a_budget(self, provider: Provider) -> None:
        outcome = await execute(provider, request(model="gpt-6", budget_microdollars=1_000_000))

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "budget_exceeded"
        assert "gpt-6 has no price" in outcome.message
        assert not provider.requests

    async def test_a_model_without_a_price_runs_where_there_is_no_budget(self, provider: Provider) -> None:
        outcome = await execute(provider, request(model="gpt-6"), Answer("{}"))

        assert isinstance(outcome, Produced)
        assert (outcome.cost_microdollars, outcome.usage.output_tokens) == (0, 50)

    async def test_a_call_whose_worst_case_does_not_fit_is_not_made(self, provider: Provider) -> None:
        outcome = await execute(provider, request(budget_microdollars=10_000))

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "budget_exceeded"
        assert "0 of 10000 microdollars are spent" in outcome.message
        assert not provider.requests

    async def test_a_budget_shortens_the_answer_that_is_asked_for(self, provider: Provider) -> None:
        budget = 50_000

        outcome = await execute(provider, request(budget_microdollars=budget), Answer("{}"))

        assert isinstance(outcome, Produced)
        (body,) = provider.requests
        assert 1_024 <= body["max_tokens"] < 16_000
        assert body["max_tokens"] * 10 < budget

    async def test_an_answer_that_the_budget_cut_is_budget_exceeded(self, provider: Provider) -> None:
        outcome = await execute(
            provider, request(budget_microdollars=50_000), Answer("{", stop_reason="max_tokens", output_tokens=2_500)
        )

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "budget_exceeded"
        assert outcome.cost_microdollars == 200 + 2_500 * 10

    async def test_a_spent_budget_stops_the_next_call_and_the_spend_is_kept(self, provider: Provider) -> None:
        outcome = await execute(
            provider,
            request(output_schema=TITLE, budget_microdollars=50_000),
            Answer("{}", input_tokens=200, output_tokens=4_000),
        )

        assert isinstance(outcome, Failure)
        assert outcome.failure_class == "budget_exceeded"
        assert outcome.cost_microdollars == 400 + 4_000 * 10
        assert "call 2" in outcome.message
        assert len(provider.requests) == 1
