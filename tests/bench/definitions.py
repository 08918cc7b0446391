"""The definitions that are measured."""

from collections.abc import Mapping
from typing import Final

STEPS: Final = "bench-steps"
DECISION: Final = "bench-decision"
SLOW: Final = "bench-slow"

SLOW_CONTEXT: Final = {"echo_seconds": 1}
"""What makes the one step of `SLOW` take a second."""

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


def _echo(key: str) -> str:
    return f"{{ key: {key}, kind: agent, agent: echo, prompt: prompts/echo.md, output: schemas/echo.json }}"


FILES: Final[Mapping[str, str]] = {
    **_workflow(STEPS, _echo("one"), _echo("two"), _echo("three")),
    **_workflow(DECISION, "{ key: review, kind: decision, role: reviewer, name: Go on, outcomes: [approve, reject] }"),
    **_workflow(SLOW, _echo("one")),
}
