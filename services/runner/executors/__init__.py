"""The ways to carry out an agent step: one port, one conformance suite, an adapter each."""

from services.runner.executors.anthropic import AnthropicExecutor
from services.runner.executors.echo import EchoExecutor
from services.runner.executors.port import OUTPUT_BYTES_MAX, AtOnce, Executor, Failure, Produced, Scope

__all__ = [
    "OUTPUT_BYTES_MAX",
    "AnthropicExecutor",
    "AtOnce",
    "EchoExecutor",
    "Executor",
    "Failure",
    "Produced",
    "Scope",
]
