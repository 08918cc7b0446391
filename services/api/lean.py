"""Calling an endpoint without FastAPI's resolution of parameters, which costs more than the busiest endpoints do.

Such an endpoint is declared like any other and described by FastAPI; what it takes is read here by the same types, and
what is wrong with it is told in the same words.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.params import Header, Query
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response

from contracts.base import Principal

E = TypeVar("E", bound=Callable[..., Any])

Call = Callable[[Request, Principal, Any], Awaitable[Response]]
"""(a request whose body was read, the caller, the door) → the endpoint's answer"""

_Read = Callable[[Request], Any]
_LEAN: Final[set[Callable[..., Any]]] = set()
_ABSENT: Final = object()


def lean(endpoint: E) -> E:
    """Mark an endpoint whose parameters are in its path, its query, its headers and one body, each once."""
    _LEAN.add(endpoint)
    return endpoint


def is_lean(endpoint: Callable[..., Any]) -> bool:
    return endpoint in _LEAN


def caller_of(endpoint: Callable[..., Awaitable[BaseModel]], *, path: str, status: int, door: type) -> Call:
    """Return what calls an endpoint of this route directly. `door` is the type by which it asks for the door."""
    readers: dict[str, _Read] = {}
    given: dict[str, str] = {}
    hints = get_type_hints(endpoint, include_extras=True)
    for name, parameter in inspect.signature(endpoint).parameters.items():
        kind, *marks = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if kind in (Principal, door, Response):
            given[name] = {Principal: "caller", door: "door", Response: "response"}[kind]
        else:
            readers[name] = _reader(name, hints[name], kind, marks, parameter.default, in_path=f"{{{name}}}" in path)

    async def call(request: Request, caller: Principal, door: Any) -> Response:
        response = Response()
        ours = {"caller": caller, "door": door, "response": response}
        arguments = {name: ours[what] for name, what in given.items()}
        errors: list[Any] = []
        body = await request.json() if request.method != "GET" else None
        request.state.body = body
        for name, read in readers.items():
            try:
                arguments[name] = read(request)
            except RequestValidationError as error:
                errors += error.errors()
        if errors:
            raise RequestValidationError(errors, body=body)
        answer = await endpoint(**arguments)
        headers = {key: value for key, value in response.headers.items() if key != "content-length"}
        return Response(answer.model_dump_json(), status_code=status, headers=headers, media_type="application/json")

    return call


def _reader(name: str, annotation: Any, kind: Any, marks: list[Any], default: Any, *, in_path: bool) -> _Read:
    mark = next((mark for mark in marks if isinstance(mark, Query | Header)), None)
    adapter = TypeAdapter(annotation)
    if in_path:
        return _validating(adapter, ("path", name), default, lambda request: request.path_params.get(name, _ABSENT))
    if isinstance(mark, Query):
        key = mark.alias or name
        return _validating(adapter, ("query", key), default, lambda request: request.query_params.get(key, _ABSENT))
    if isinstance(mark, Header):
        header = mark.alias or name.replace("_", "-")
        return _validating(adapter, ("header", header), default, lambda request: request.headers.get(header, _ABSENT))
    assert isinstance(kind, type), f"parameter {name} is of a kind that is not read here"
    assert issubclass(kind, BaseModel), f"parameter {name} is of a kind that is not read here"
    return _validating(adapter, ("body",), default, lambda r: _ABSENT if r.state.body is None else r.state.body)


def _validating(adapter: TypeAdapter[Any], place: tuple[str, ...], default: Any, get: _Read) -> _Read:
    def read(request: Request) -> Any:
        value = get(request)
        if value is _ABSENT:
            if default is not inspect.Parameter.empty:
                return default
            missing = {"type": "missing", "loc": place, "msg": "Field required", "input": None}
            raise RequestValidationError([missing])
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise RequestValidationError([{**each, "loc": (*place, *each["loc"])} for each in found]) from None

    return read
