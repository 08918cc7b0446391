"""E-mail against a real mail server: at most once, to the people who may answer, and nothing slips into a header."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contracts.events.decision import Barred, Quorum, QuorumGroup
from contracts.events.identity import UserDeactivated
from contracts.events.run import RoleBinding
from libs.domain import identity, notice
from tests.support.notices import PUBLIC_URL, SENDER, World, open_world
from tests.support.postgres import Database
from tests.support.receivers import Taken, receiver
from tests.support.record import eventually

DESK = "desk@example.com"


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with open_world(database) as world:
        yield world


@pytest.fixture
async def smtp(tmp_path: Path) -> AsyncIterator[Taken]:
    async with receiver("smtp", tmp_path / "smtp") as taken:
        yield taken


async def test_an_e_mail_is_plain_text_with_an_id_of_its_own(world: World, smtp: Taken) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", to=(DESK, "lead@example.com"))
    _, bus = await world.service()
    decision_id = await world.decide(title="Prüfen: ist es richtig?")
    await world.tell(bus, "decision.opened", decision_id)
    await world.until("sent")
    [notice_id] = await world.notices()
    [taken] = smtp.all()
    assert (taken["from"], taken["to"]) == (SENDER, [DESK, "lead@example.com"])
    assert taken["headers"]["subject"] == "To decide: Prüfen: ist es richtig?"
    assert taken["headers"]["message-id"] == f"<{notice_id}@example.com>"
    assert taken["headers"]["auto-submitted"] == "auto-generated"
    assert taken["headers"]["content-type"].startswith("text/plain")
    assert taken["text"].splitlines()[-1] == f"{PUBLIC_URL}/decisions/{decision_id}"
    assert "artefact itself" not in str(taken)


async def test_holders_get_one_each_and_nobody_else_does(world: World, smtp: Taken) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", "decision.escalated", holders=True)
    _, bus = await world.service()
    priya = await world.person("priya@example.com", "project_manager", projects=["core"])
    await world.person("pat@example.com", "project_manager", projects=["core"])
    await world.person("elsewhere@example.com", "project_manager", projects=["other"])
    barred = await world.person("barred@example.com", "project_manager", projects=["core"])
    gone = await world.person("gone@example.com", "project_manager", projects=["core"])
    await world.record.plant(identity.CATEGORY, gone, UserDeactivated(at=await world.record.store.now()))
    await world.person("lead@example.com", "lead", projects=["core"])
    security = await world.person("sec@example.com", "security", projects=["core"])
    group = QuorumGroup(role="security", binding=RoleBinding(roles=("security",)), need=1)
    decision_id = await world.decide(
        barred=(Barred(rule="reviser", user=None), Barred(rule="initiator", user=barred)),
        quorum=Quorum(need=2, groups=(group,)),
    )
    for _ in range(3):
        await world.tell(bus, "decision.opened", decision_id)
    await world.until("sent", 3)
    assert sorted(taken["to"] for taken in smtp.all()) == [
        ["pat@example.com"],
        ["priya@example.com"],
        ["sec@example.com"],
    ]
    assert {found.recipient for found in (await world.notices()).values()} >= {priya, security}

    await world.overdue(decision_id)
    await world.tell(bus, "decision.escalated", decision_id, version=3)
    await world.until("sent", 7)
    assert sorted(taken["to"][0] for taken in smtp.all()[3:]) == [
        "lead@example.com",
        "pat@example.com",
        "priya@example.com",
        "sec@example.com",
    ]


@pytest.mark.parametrize("fault", ["hang", "drop"])
async def test_what_may_have_been_taken_is_in_doubt_and_sent_again_by_hand_alone(
    world: World, smtp: Taken, fault: str
) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", to=(DESK,))
    _, bus = await world.service(notice_seconds=1)
    smtp.misbehave(fault)
    await world.tell(bus, "decision.opened", await world.decide())
    await world.until("in_doubt")
    [notice_id] = await world.notices()
    await world.record.shift(timedelta(days=2))
    await bus.wake("effects", "notice", notice_id)
    await bus.tell("effects-notices", "notice.raised", notice_id)
    assert len(smtp.all()) == 1
    assert (await world.notices())[notice_id].status == "in_doubt"


@pytest.mark.parametrize(
    ("to", "fault", "status", "said"),
    [
        ("nobody@example.com", "", "failed", "refused every recipient (550)"),
        ("later@example.com", "", "due", "refused every recipient (451)"),
        (DESK, "554 we do not like it", "failed", "refused the message (554)"),
        (DESK, "452 no room", "due", "refused the message (452)"),
    ],
)
async def test_what_the_server_refuses_was_not_sent(
    world: World, smtp: Taken, to: str, fault: str, status: str, said: str
) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", to=(to,))
    _, bus = await world.service()
    smtp.misbehave(*[fault] if fault else [])
    await world.tell(bus, "decision.opened", await world.decide())

    async def told() -> bool:
        return [said in (found.message or "") for found in (await world.notices(status)).values()] == [True]

    await eventually(told)


async def test_one_refused_address_does_not_keep_it_from_the_others(world: World, smtp: Taken) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", to=("nobody@example.com", DESK))
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())
    await world.until("sent")
    assert [taken["to"] for taken in smtp.all()] == [[DESK]]


async def test_a_title_cannot_add_a_header(world: World, smtp: Taken) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", to=(DESK,))
    _, bus = await world.service()
    await world.tell(
        bus, "decision.opened", await world.decide(title="Hi\r\nBcc: thief@example.com\r\n\r\nBuy \u2028moons")
    )
    await world.until("sent")
    [taken] = smtp.all()
    assert taken["headers"]["subject"] == "To decide: Hi Bcc: thief@example.com Buy moons"
    assert "bcc" not in taken["headers"]
    assert taken["to"] == [DESK]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("smtp://127.0.0.1:1", "no connection"),
        ("https://example.com", "is no smtp://"),
        ("smtp://user:hush@{host}", "no connection"),
        ("smtps://{host}", "no connection"),
    ],
    ids=["nobody listens", "no mail server", "a password only under TLS", "no TLS there"],
)
async def test_a_server_that_cannot_be_used_is_tried_again(world: World, smtp: Taken, url: str, said: str) -> None:
    await world.channel(
        "mail", "email", url.format(host=smtp.url.removeprefix("smtp://")), "decision.opened", to=(DESK,)
    )
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())

    async def told() -> bool:
        return [said in (found.message or "") for found in (await world.notices("due")).values()] == [True]

    await eventually(told)
    assert "hush" not in str(await world.notices())
    assert smtp.all() == []


async def test_a_person_who_left_meanwhile_gets_none(world: World, smtp: Taken) -> None:
    await world.channel("mail", "email", smtp.url, "decision.opened", holders=True)
    _, bus = await world.service()
    priya = await world.person("priya@example.com", "project_manager", projects=["core"])
    await bus.tell("effects-notices", "decision.opened", await world.decide())
    await world.record.plant(identity.CATEGORY, priya, UserDeactivated(at=await world.record.store.now()))
    await world.send(bus)
    await world.until("failed")
    assert smtp.all() == []


async def test_it_is_given_up_after_so_many_tries(world: World) -> None:
    await world.channel("mail", "email", "smtp://127.0.0.1:1", "decision.opened", to=(DESK,))
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())
    [notice_id] = await world.notices()
    for tries in range(1, notice.TRIES_MAX + 1):

        async def reported(tries: int = tries) -> bool:
            found = (await world.notices())[notice_id]
            return found.tries == tries and found.status != "sending"

        await eventually(reported)
        await world.record.shift(notice.PAUSE_MAX)
        await bus.wake("effects", "notice", notice_id)
    assert [found.status for found in (await world.notices()).values()] == ["failed"]


def certificate(folder: Path) -> Path:
    """A certificate of this machine that nobody has signed but itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "mail.pem"
    pem, unprotected = serialization.Encoding.PEM, serialization.NoEncryption()
    file.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unprotected))
    return file


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_password_is_sent_under_tls_to_a_server_that_is_trusted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    file = certificate(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with receiver("smtp", tmp_path / "smtp", secret=str(file)) as smtp:
        url = smtp.url.replace("smtp://", "smtp://minutebook:s%40fe%3A1@")
        await world.channel("mail", "email", url, "decision.opened", to=(DESK,))
        _, bus = await world.service()
        await world.tell(bus, "decision.opened", await world.decide())
        if trusted:
            await world.until("sent")
            [taken] = smtp.all()
            assert (taken["tls"], taken["login"]) == (True, "minutebook s@fe:1")
            return

        async def refused() -> bool:
            return ["no connection" in (found.message or "") for found in (await world.notices("due")).values()] == [
                True
            ]

        await eventually(refused)
        assert smtp.all() == []
