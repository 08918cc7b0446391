"""The page that the link of a decision's notice leads to. It decides nothing: the buttons on it call the API."""

from importlib.resources import files
from typing import Final
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from contracts.errors import Rejected

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Nothing from elsewhere, nothing inline, and no form that a browser could send by itself."""

_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
_ASSETS: Final = {"decision.js": "text/javascript", "decision.css": "text/css"}

router: Final = APIRouter(include_in_schema=False)


@router.get("/decisions/{decision_id}")
async def get_page(decision_id: UUID) -> Response:
    """The page, the same for every decision: whether there is such a one is told to those who may see it."""
    return Response(_read("decision.html"), media_type="text/html", headers=_HEADERS)


@router.get("/decisions/pages/{asset}")
async def get_asset(asset: str) -> Response:
    """What the page loads, and nothing else. Addresses are relative, so a proxy may serve the api under a prefix."""
    if asset not in _ASSETS:
        raise Rejected("resource.not_found", f"there is nothing at /decisions/pages/{asset}", status=404)
    return Response(_read(asset), media_type=_ASSETS[asset], headers=_HEADERS)


def _read(name: str) -> bytes:
    return (files("services.api.pages") / name).read_bytes()
