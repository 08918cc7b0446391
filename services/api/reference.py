"""The reference at `/docs`: Swagger UI served from here, so that it works without internet and tells nobody."""

from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from contracts.errors import Rejected

PATH: Final = "/docs"

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_FRESH_SECONDS: Final = 3_600

# Addresses are relative, so that the page also works behind a proxy that serves the api under a prefix.
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Minutebook API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<noscript>This page needs JavaScript. What it shows is <a href="openapi.json">openapi.json</a>.</noscript>
<main id="reference"></main>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

# The validator of Swagger UI would send the description's address to its maker.
_START: Final = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
"""

_ASSETS: Final = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}

router: Final = APIRouter(include_in_schema=False)


@router.get(PATH)
async def get_reference() -> Response:
    """The page."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get(f"{PATH}/{{asset}}")
async def get_asset(asset: str) -> Response:
    """What the page loads, and nothing else."""
    headers = {**_HEADERS, "cache-control": f"public, max-age={_FRESH_SECONDS}"}
    if asset == "start.js":
        return Response(_START, media_type="text/javascript", headers=headers)
    if asset not in _ASSETS:
        raise Rejected("resource.not_found", f"there is nothing at {PATH}/{asset}", status=404)
    # Of the package only the files are used; its own way into FastAPI would leave scripts inside the page.
    path = files("fastapi_offline") / "static" / asset
    return FileResponse(str(path), media_type=_ASSETS[asset], headers=headers)
