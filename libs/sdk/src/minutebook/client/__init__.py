"""A client of the HTTP API: typed answers, typed errors.

`connection` is how the API is called; the other rooms are what is called, by what it is about.
"""

from minutebook.client.connection import ApiError, Unreachable
from minutebook.client.decisions import DecisionCalls
from minutebook.client.definitions import DefinitionCalls
from minutebook.client.effects import EffectCalls
from minutebook.client.events import EventCalls
from minutebook.client.notices import NoticeCalls
from minutebook.client.people import PeopleCalls
from minutebook.client.runs import RunCalls


class Client(RunCalls, DecisionCalls, DefinitionCalls, EffectCalls, NoticeCalls, EventCalls, PeopleCalls):
    """An asynchronous client; use it as a context manager.

    `address` falls back to `MINUTEBOOK_SERVER_ADDRESS`, then to `http://127.0.0.1:8080`; `api_key`, a personal access
    token or an API key, to `MINUTEBOOK_API_KEY`. Every method raises `ApiError` or `Unreachable`.
    """


__all__ = ["ApiError", "Client", "Unreachable"]
