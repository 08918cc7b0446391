"""The program that a YAML definition is: steps in reading order, pinned by hash."""

from collections.abc import Mapping
from typing import Final

from libs.domain.run.programs.definition.agents import agent, parallel
from libs.domain.run.programs.definition.decisions import decision
from libs.domain.run.programs.definition.writes import write
from libs.domain.run.walk import Stepper

STEPPERS: Final[Mapping[str, Stepper]] = {"agent": agent, "decision": decision, "parallel": parallel, "write": write}

__all__ = ["STEPPERS"]
