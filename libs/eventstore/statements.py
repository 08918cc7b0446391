# ruff: noqa: S608 - SQL is what this module makes, of names of our own; values are parameters.
"""The append as one statement, generated per category and shape of the batch.

Order is everything here. All statements lock alike: guards, own heads, births, ready rows, blobs; heads by
`heads.LOCK_ORDER` and by stream id. Where a part does not read the part before it, it counts it, so that the
executor must finish that first.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from libs.eventstore.heads import COMMON, GATE, HEADS, LOCK_ORDER, Heads
from libs.eventstore.port import Era

NO_CLAIM: Final = "00000000-0000-0000-0000-000000000000"
"""Set as a claim it clears the claim: `excluded` has no column to say `release`."""

_COMMON_TYPES: Final = {
    "stream_id": "uuid",
    "tenant_group": "uuid",
    "tenant": "uuid",
    "version": "int",
    "appended": "int",
    "state": "text",
    "digest": "bytea",
    "wake_at": "timestamptz",
}
_BIRTH_TYPES: Final = {"birth_number": "int", "bearer": "uuid", "work_subject": "text"}
"""Of a birth beside its head's columns, so none of them may be called like one: `bearer` is the stream that won."""

_EVENT_TYPES: Final = {
    "birth": "int",
    "stream_id": "uuid",
    "version": "int",
    "category": "text",
    "type": "text",
    "event_version": "int",
    "payload": "text",
    "metadata": "text",
    "tenant_group": "uuid",
    "tenant": "uuid",
    "digest": "bytea",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch needs. A statement has no parts that its batch does not use: each costs time to plan and start."""

    category: str
    guards: tuple[str, ...] = ()
    deadlines: bool = False
    births: tuple[str, ...] = ()
    ready: bool = False
    blobs: bool = False
    forget: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL, and the names of its array parameters in order."""

    sql: str
    parameters: tuple[str, ...]


class _Builder:
    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.parts: list[str] = []

    def unnest(self, prefix: str, columns: dict[str, str], *, numbered: bool = False) -> str:
        """A table of parameters, its rows numbered as `n`. Arrays travel as JSON: unnest flattens arrays of arrays."""
        numbers = []
        for name, kind in columns.items():
            self.parameters.append(f"{prefix}.{name}")
            numbers.append(f"${len(self.parameters)}::{'text' if kind == 'text[]' else kind}[]")
        ordinality, n = (" with ordinality", ", n") if numbered else ("", "")
        return f"unnest({', '.join(numbers)}){ordinality} as {prefix}({', '.join(columns)}{n})"

    def part(self, sql: str) -> None:
        self.parts.append(sql.strip())


@lru_cache(maxsize=512)
def append_statement(shape: Shape, era: Era) -> Statement:
    """Return the statement for batches of this shape. It answers one row: era, xid, won (streams), born (numbers).

    Once another era has begun it writes nothing, and its era is null.
    """
    heads = HEADS[shape.category]
    build = _Builder()
    newest = "select era, began_at from eras order by era desc limit 1"
    build.part(f"""
clock as materialized (
  select minutebook_now() as now, e.era from ({newest}) e
   where e.era = {era.number:d} and e.began_at = timestamptz '{era.began_at.isoformat()}')""")
    _guards(build, shape)
    _gate(build, shape, heads)
    _births(build, shape)
    _ready(build, shape)
    _blobs(build, shape)
    _history(build, shape)
    if shape.category == "inbound":
        build.part("recorded as (delete from deliveries d using won w where d.id = w.stream_id)")
    if shape.forget:
        _forget(build)
    born = "array(select n from born)" if shape.births else "array[]::int[]"
    sql = (
        "with "
        + ",\n".join(build.parts)
        + (
            "\nselect (select era from clock) as era, array(select stream_id from won) as won,"
            f" {born} as born, (select xid::text::bigint from outbox) as xid"
        )
    )
    return Statement(sql, tuple(build.parameters))


def _guards(build: _Builder, shape: Shape) -> None:
    """Lock the guards' heads for share. A guard waits behind an uncommitted change and is then judged by the new row.

    Lateral over a sorted, fenced subquery: one probe each, in lock order. `blocked` reads them all before any head is
    gated.
    """
    if not shape.guards:
        return
    columns = {"n": "int", "item": "uuid", "category": "text", "stream_id": "uuid", "states": "text"}
    build.part(f"guard_in as materialized (select * from {build.unnest('guard', columns)})")
    for category in shape.guards:
        build.part(f"""
held_{category} as materialized (
  select g.n from (
    select n, stream_id, states from guard_in where category = '{category}' order by stream_id, n offset 0) g
  cross join lateral (
    select 1 from {HEADS[category].table} h
     where h.stream_id = g.stream_id and h.state = any(string_to_array(g.states, ','))
       for share of h) held)""")
    held = " union all ".join(f"select n from held_{category}" for category in shape.guards)
    build.part(f"blocked as materialized (select item from guard_in where n not in ({held}))")


def _gate(build: _Builder, shape: Shape, heads: Heads) -> None:
    """Compare and set the head rows, sorted: unsorted writers deadlock."""
    columns = _COMMON_TYPES | dict(heads.columns) | ({"claim": "uuid"} | dict(GATE) if heads.claimable else {})
    names = list(columns)
    updates = [f"{name} = excluded.{name}" for name in names if name not in _UNCHANGED]
    conditions = ["h.version = excluded.version - excluded.appended"]
    # A new stream must expect zero. As a flat subquery it costs 0.4 ms at 30,000 heads; as `exists` a cached plan
    # on unanalysed tables took 8.
    version = f"select x.version from {heads.table} x where x.stream_id = i.stream_id"
    admitted = [
        f"coalesce(({version}), 0) = i.version - i.appended",
        "(select era from clock) is not null",
    ]
    if shape.guards:
        admitted.append("i.stream_id not in (select item from blocked)")
    if shape.deadlines:
        late = f"select item from {build.unnest('late', {'item': 'uuid', 'deadline': 'timestamptz'})}"
        admitted.append(f"i.stream_id not in ({late} where deadline < (select now from clock))")
    if heads.claimable:
        cleared = f"excluded.claim = '{NO_CLAIM}'"
        conditions.append("(excluded.gate is null or h.claim = excluded.gate)")
        admitted.append("(i.gate is null or i.version > i.appended)")
        updates += [
            f"claim = nullif(coalesce(excluded.claim, h.claim), '{NO_CLAIM}')",
            f"lease_until = case when {cleared} then null else h.lease_until end",
            # While a lease stands its end is a wake of its own, whatever else the stream waits for.
            f"wake_at = least(excluded.wake_at, case when {cleared} then null else h.lease_until end)",
            "gate = null",
        ]
    else:
        updates.append("wake_at = excluded.wake_at")
    build.part(f"""
won as (
  insert into {heads.table} as h ({", ".join(names)})
  select {_values("i", columns)} from {build.unnest("i", columns)}
   where {" and ".join(admitted)}
   order by i.stream_id
  on conflict (stream_id) do update set {", ".join(updates)}
   where {" and ".join(conditions)}
  returning h.stream_id)""")


_UNCHANGED: Final = frozenset({"stream_id", "tenant_group", "tenant", "wake_at", "claim", "gate"})
"""Not simply overwritten: a stream never changes hands; the others follow rules of their own."""


def _values(alias: str, columns: dict[str, str]) -> str:
    return ", ".join(
        f"array(select json_array_elements_text({alias}.{name}::json))" if kind == "text[]" else f"{alias}.{name}"
        for name, kind in columns.items()
    )


def _births(build: _Builder, shape: Shape) -> None:
    """Insert the heads of other streams whose parents won. One that exists already is skipped and not in `born`.

    Two appends of a batch may bear the same stream: the first one that won does.
    """
    if not shape.births:
        return
    for category in shape.births:
        heads = HEADS[category]
        columns = {k: v for k, v in _COMMON_TYPES.items() if k not in ("version", "appended")} | dict(heads.columns)
        source = build.unnest(f"birth_{category}", _BIRTH_TYPES | columns)
        build.part(f"""
birth_{category} as materialized (
  select distinct on (b.stream_id) b.*
    from (select * from {source}) b
   where b.bearer in (select stream_id from won) order by b.stream_id, b.birth_number)""")
        build.part(f"""
born_{category} as (
  insert into {heads.table} (version, appended, {", ".join(columns)})
  select 1, 1, {_values("b", columns)} from birth_{category} b order by b.stream_id
  on conflict (stream_id) do nothing returning stream_id)""")
    born = "\n  union all ".join(
        f"select birth_number as n, stream_id, tenant_group, work_subject as subject from birth_{category}"
        f" where stream_id in (select stream_id from born_{category})"
        for category in shape.births
    )
    build.part(f"born as materialized ({born})")


def _ready(build: _Builder, shape: Shape) -> None:
    """Queue work. Only ever inserts: deleting here deadlocks with claims (ready then run, run then ready)."""
    if not shape.ready:
        return
    columns = {"parent": "uuid", "stream_id": "uuid", "tenant_group": "uuid", "subject": "text"}
    born = ""
    if shape.births:
        born = "select stream_id, tenant_group, subject from born where subject is not null union all "
    build.part(f"""
queued as (
  insert into ready(attempt_id, subject, tenant_group)
  select q.stream_id, q.subject, q.tenant_group from (
    {born}select stream_id, tenant_group, subject from {build.unnest("ready", columns)}
     where parent in (select stream_id from won)) q
   order by q.stream_id
  on conflict (attempt_id) do nothing returning 1)""")


def _blobs(build: _Builder, shape: Shape) -> None:
    if not shape.blobs:
        return
    columns = {"parent": "uuid", "tenant_group": "uuid", "digest": "bytea", "content": "bytea"}
    # Distinct by key only: comparing contents would read megabytes.
    after = " and (select count(*) from queued) >= 0" if shape.ready else ""
    build.part(f"""
kept as (
  insert into blobs(tenant_group, digest, content)
  select distinct on (blob.tenant_group, blob.digest) blob.tenant_group, blob.digest, blob.content
    from {build.unnest("blob", columns)}
   where blob.parent in (select stream_id from won){after}
   order by blob.tenant_group, blob.digest
  on conflict (tenant_group, digest) do nothing returning 1)""")


def _history(build: _Builder, shape: Shape) -> None:
    """Write the facts, in order of the batch: else some plans number events against their versions."""
    own = "e.birth is null and e.stream_id in (select stream_id from won)"
    # `is true` keeps the subquery from becoming a join: nothing is known of its size, so each fact would look through
    # all that won.
    chosen = f"(({own}) or e.birth in (select n from born))" if shape.births else f"({own}) is true"
    source = build.unnest("e", _EVENT_TYPES, numbered=True)
    build.part(f"""
written as (
  insert into workflow_history(era, stream_id, version, category, type, event_version, payload, metadata,
                               tenant_group, tenant, recorded_at, digest)
  select c.era, e.stream_id, e.version, e.category, e.type, e.event_version, e.payload::json, e.metadata::json,
         e.tenant_group, e.tenant, c.now, e.digest
    from {source} cross join clock c
   where {chosen}
   order by e.n returning 1)""")
    build.part("""
outbox as (
  insert into unpublished(era, written_at) select c.era, c.now from clock c where exists (select from written)
  returning xid)""")


def _forget(build: _Builder) -> None:
    """Delete outbox rows of earlier statements. A row that somebody else deletes at this moment is left to them."""
    build.part(f"forgotten as ({forget_sql(build.unnest('token', {'era': 'int', 'xid': 'text'}))})")


def forget_sql(source: str) -> str:
    """Delete the outbox rows that `source` names as `token(era, xid)`, `xid` as text, without waiting for anybody."""
    return f"""
delete from unpublished u where (u.era, u.xid) in (
  select p.era, p.xid from {source} join unpublished p on p.era = token.era and p.xid = token.xid::xid8
     for update of p skip locked)""".strip()


def lock_ordered(categories: set[str]) -> tuple[str, ...]:
    return tuple(category for category in LOCK_ORDER if category in categories)


assert tuple(_COMMON_TYPES) == COMMON
assert not [heads.category for heads in HEADS.values() if _BIRTH_TYPES.keys() & dict(heads.columns).keys()]
