"""The definitions that are measured."""

from collections.abc import Mapping
from typing import Final

STEPS: Final = "bench-steps"
DECISION: Final = "bench-decision"
SLOW: Final = "bench-slow"
LONG: Final = "bench-long"
LOOP: Final = "bench-loop"
ITEMS: Final = "bench-items"

SLOW_CONTEXT: Final = {"echo_seconds": 1}
"""What makes the one step of `SLOW` take a second."""

LONG_STEPS: Final = 200
LOOP_STEPS: Final = 120

ITEMS_CONTEXT: Final = {"items": list(range(500))}
"""What the one step of `ITEMS` is done for."""

_PROMPT: Final = "Answer with what you were given.\n"
_SCHEMA: Final = '{"type": "object"}\n'


def _workflow(id_: str, *steps: str) -> Mapping[str, str]:
    listed = "\n".join(f"        - {step}" for step in steps)
    return {
        f"workflows/{id_}/workflow.yaml": f"""\
workflow:
  id: {id_}
  name: {id_}
  description: Measured by the benchmark.
  context: {{ required: [number] }}
  triggers:
    - {{ kind: manual, roles: [platform_admin] }}
  roles:
    reviewer: {{ roles: [platform_admin] }}
  stages:
    - key: only
      name: The only one
      steps:
{listed}
""",
        f"workflows/{id_}/prompts/echo.md": _PROMPT,
        f"workflows/{id_}/schemas/echo.json": _SCHEMA,
    }


def _echo(key: str, more: str = "") -> str:
    return f"{{ key: {key}, kind: agent, agent: echo, prompt: prompts/echo.md, output: schemas/echo.json{more} }}"


def _echoes(count: int) -> list[str]:
    return [_echo(f"step_{n}") for n in range(1, count + 1)]


FILES: Final[Mapping[str, str]] = {
    **_workflow(STEPS, _echo("one"), _echo("two"), _echo("three")),
    **_workflow(DECISION, "{ key: review, kind: decision, role: reviewer, name: Go on, outcomes: [approve, reject] }"),
    **_workflow(SLOW, _echo("one")),
    **_workflow(LONG, *_echoes(LONG_STEPS)),
    # What the gate asks for never comes: it sends the run back as often as it may, then the run is suspended.
    **_workflow(
        LOOP,
        *_echoes(LOOP_STEPS),
        "{ key: again, kind: gate, gate: exists(context.never), loop_to: step_1, loop_max: 20 }",
    ),
    **_workflow(ITEMS, _echo("each", ", for_each: { items: context.items, max_parallel: 50 }")),
}
