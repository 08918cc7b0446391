"""A service as a process sees it: what it is built from, its duties, start, drain and stop."""

from libs.process.messages import actor, envelope_handler, wake_handler
from libs.process.service import Duty, Readiness, Service, Tools

__all__ = ["Duty", "Readiness", "Service", "Tools", "actor", "envelope_handler", "wake_handler"]
