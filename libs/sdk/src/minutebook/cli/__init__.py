"""The command line: every command talks to the HTTP API, or comes from the server's package by entry point."""

from minutebook.cli.main import main

__all__ = ["main"]
