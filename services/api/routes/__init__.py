"""One file per resource. Handlers are thin: they ask the owner, or read, and answer a public model."""

from typing import Final

from fastapi import APIRouter

from services.api.routes import (
    dead_letters,
    decisions,
    definitions,
    delegations,
    effects,
    events,
    grants,
    health,
    me,
    notices,
    operations,
    runs,
    schedules,
    users,
    webhooks,
)

ROUTERS: Final[tuple[APIRouter, ...]] = (
    runs.router,
    operations.router,
    decisions.router,
    delegations.router,
    effects.router,
    definitions.router,
    events.router,
    webhooks.router,
    schedules.router,
    notices.router,
    dead_letters.router,
    grants.router,
    users.router,
    me.router,
    health.router,
)

TAGS: Final = [
    {"name": "runs", "description": "Instances of workflows: start, read, stop and go on."},
    {"name": "decisions", "description": "What people are asked, and their answers."},
    {"name": "effects", "description": "Writes to the outside world, each made at most once."},
    {"name": "definitions", "description": "Workflows, event sources, servers and channels of the tenant group."},
    {
        "name": "events",
        "description": "Webhooks from declared sources, and what followed from them.",
    },
    {"name": "schedules", "description": "When definitions start runs by themselves."},
    {"name": "notices", "description": "Who was told of what waits or went wrong, and by which channels."},
    {"name": "grants", "description": "Users' credentials for MCP servers, which writes of their runs bear."},
    {"name": "users", "description": "Who there is in the tenant group; for administrators."},
    {"name": "dead letters", "description": "What services gave up on, until it is had done again."},
    {"name": "me", "description": "Who the caller is."},
    {"name": "health", "description": "Whether the service lives and can work."},
]
