"""Commands on notices and the channels that they go out by."""

from typing import Annotated

import typer
from rich.markup import escape

from minutebook.cli.printing import HASH_CHARS, moment, table
from minutebook.cli.session import call, out, show
from minutebook.client import Client
from minutebook.models import ChannelView, NoticeView

notices = typer.Typer(help="See who was told of what, and send it again.", no_args_is_help=True)


@notices.command("list")
def list_notices(
    run: Annotated[str | None, typer.Option(help="only about this run")] = None,
    state: Annotated[list[str], typer.Option(help="due, sending, sent, failed or in_doubt; repeated")] = [],  # noqa: B006
    channel: Annotated[str | None, typer.Option(help="only on this channel")] = None,
) -> None:
    """List notices, newest first."""

    async def read(client: Client) -> list[NoticeView]:
        return [item async for item in client.notices(run=run, state=state, channel=channel)]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No notices.")
        return
    rows = table("NOTICE", "RAISED", "CHANNEL", "ABOUT", "STATE", "TITLE", "WHY")
    for item in found:
        rows.add_row(
            str(item.notice_id),
            moment(item.raised_at),
            item.channel,
            item.about,
            item.state,
            escape(item.title),
            escape(item.message or "-"),
        )
    out.print(rows)


@notices.command("retry")
def retry(notice_id: Annotated[str, typer.Argument(help="the notice's id, from `notices list`")]) -> None:
    """Send a notice once more that failed or is in doubt; an e-mail may be read twice then."""
    changed = call(lambda c: c.retry_notice(notice_id))
    if not show(changed):
        out.print(f"notice {changed.notice_id} is {changed.state}")


@notices.command("channels")
def channels() -> None:
    """List the channels and what they are told of."""

    async def read(client: Client) -> list[ChannelView]:
        return [item async for item in client.channels()]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No channels. Declare some in channels.yaml, then `minutebook definitions sync DIR`.")
        return
    rows = table("CHANNEL", "KIND", "VERSION", "ABOUT", "TO")
    for item in found:
        to = [*item.to, *(["holders"] if item.holders else [])]
        rows.add_row(item.id, item.kind, item.hash[:HASH_CHARS], "\n".join(item.about) or "off", ", ".join(to) or "-")
    out.print(rows)
