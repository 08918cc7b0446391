-- The schema that the migrations add up to; a test compares the two. `schema_migrations` is the ledger of `migrate`.

create table schema_migrations(
  version int primary key, name text not null, applied_at timestamptz not null default clock_timestamp());

-- The one clock. Every comparison of times uses it; tests shift it, the services' role cannot.
create table clock_shift(
  one boolean primary key default true check (one),
  shift interval not null default interval '0');
insert into clock_shift default values;

-- Declared stable, so that `wake_at <= minutebook_now()` can use its index; a statement that needs one moment reads it once.
create function minutebook_now() returns timestamptz language sql stable
  as $$ select clock_timestamp() + shift from clock_shift $$;

-- An era begins with the installation and after each restore or failover. The current one is the greatest.
create table eras(
  era int primary key,
  began_at timestamptz not null default clock_timestamp(),
  reason text not null);
insert into eras(era, reason) values (1, 'installed');

-- The history. The partition key is the stream: almost every read names streams and so touches one partition; the primary
-- key must contain the partition key, and (stream_id, version) is the backstop of every gate, so a key by time or by era
-- would lose it; and history is never dropped by age. Eight keep each index small and vacuum's work in pieces on one machine,
-- and cost the reader of everything a merge of eight index scans.
create table workflow_history(
  era int not null,
  xid xid8 not null default pg_current_xact_id(),
  position bigint generated always as identity,
  stream_id uuid not null,
  version int not null,
  category text not null,
  type text not null,
  event_version int not null,
  payload json not null,       -- json keeps the bytes that the digest covers; jsonb would not, and costs 20 % more
  metadata json not null,
  tenant_group uuid not null,
  tenant uuid not null,
  recorded_at timestamptz not null default minutebook_now(),
  digest bytea not null,
  primary key (stream_id, version)) partition by hash (stream_id);
create index workflow_history_order on workflow_history(era, xid, position);

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only: % is refused', regexp_replace(tg_table_name, '_[0-9]+$', ''), tg_op
    using errcode = 'restrict_violation', hint = 'append a fact that corrects the earlier one';
end $$;

create trigger append_only before update or delete on workflow_history for each row execute function refuse_change();
create trigger never_emptied before truncate on workflow_history execute function refuse_change();
-- Row triggers are inherited by partitions, statement triggers are not.
do $$ begin
  for n in 0..7 loop
    execute format('create table workflow_history_%s partition of workflow_history for values with (modulus 8, remainder %s)', n, n);
    execute format('create trigger never_emptied before truncate on workflow_history_%s execute function refuse_change()', n);
  end loop;
end $$;

-- Head rows: one table a category, one row a stream. At once the gate of the append, the index of operations and what
-- lists show. `appended` is how many events the last append wrote: the gate compares the version before them, and
-- `excluded` has no other column to say it. `gate` likewise carries the claim that an append expects; it is null at rest.
-- `wake_at`, `claim` and `lease_until` are operational: not derived from events, not verified. The fill factor leaves room
-- for updates in place, and no index contains `state` unless it is partial on open work.
create table identity_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  kind text not null, name text not null, owner uuid, holds text[]) with (fillfactor = 70);
create index identity_heads_group on identity_heads(tenant_group, kind, name);
-- Who holds a role is found without reading everybody: of users `holds` has `role:`, `group:` and `project:` with what they
-- have. It is null where a release wrote the row that did not say it; `rebuild` does.
create index identity_heads_holds on identity_heads using gin (holds) where kind = 'user' and state = 'active';
create index identity_heads_untold on identity_heads(tenant_group, stream_id)
  where kind = 'user' and state = 'active' and holds is null;

create table definition_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  kind text not null, name text not null, hash text not null, enabled boolean not null,
  event_sources text[] not null default '{}', schedules int not null default 0) with (fillfactor = 70);
create index definition_heads_group on definition_heads(tenant_group);

create table inbound_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  source text not null, external_id text not null, event text not null,
  received_at timestamptz not null, body_sha256 text not null default '', unmatched text) with (fillfactor = 70);
-- An opening wait looks back over what came from its source.
create index inbound_heads_source on inbound_heads(tenant_group, source, received_at);
create index inbound_heads_newest on inbound_heads(tenant_group, received_at desc, stream_id);
create index inbound_heads_unmatched on inbound_heads(tenant_group, received_at desc, stream_id) where unmatched is not null;

create table run_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  definition_id text not null, hash text not null, initiator uuid not null, project_id text, stage text, outcome text,
  reason text, created_at timestamptz not null, finished_at timestamptz,
  cost_microdollars bigint not null, variant text, parent uuid, search text[] not null default '{}',
  tasks int not null default 0) with (fillfactor = 70);
-- `key=value` of a run's context, for finding it by its Jira key. It never changes, so updates of the row stay in place.
create index run_heads_search on run_heads using gin (search) where search <> '{}';
-- Manual steps that wait for a person: few, and the inbox begins with the one that has waited longest.
create index run_heads_tasks on run_heads(tenant_group, created_at, stream_id) where tasks > 0;
create index run_heads_newest on run_heads(tenant_group, created_at desc, stream_id);
create index run_heads_definition on run_heads(tenant_group, definition_id, created_at desc, stream_id);
create index run_heads_initiator on run_heads(tenant_group, initiator, created_at desc, stream_id);
create index run_heads_project on run_heads(tenant_group, project_id, created_at desc, stream_id) where project_id is not null;
-- Open runs are few beside those that have ended; the update that ends one moves its `wake_at` and is not in place anyway.
create index run_heads_unfinished on run_heads(tenant_group, created_at desc, stream_id) where finished_at is null;
create index run_heads_parent on run_heads(parent) where parent is not null;

create table attempt_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid not null, step text not null, round int not null, number int not null, cost_microdollars bigint not null,
  failure_class text,
  claim uuid, lease_until timestamptz, gate uuid) with (fillfactor = 70);
create index attempt_heads_run on attempt_heads(run_id);

create table decision_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid not null, step text not null, role text not null, outcome text, opened_at timestamptz not null,
  answered_at timestamptz, definition_id text not null, project_id text, initiator uuid not null,
  due_at timestamptz, escalated_to text) with (fillfactor = 70);
create index decision_heads_run on decision_heads(run_id);
create index decision_heads_open on decision_heads(tenant_group, opened_at) where state = 'open';

create table wait_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid not null, step text not null, source text not null, event text, probe text not null default '',
  inbound_id uuid) with (fillfactor = 70);
create index wait_heads_run on wait_heads(run_id);
-- Which waits an event may resume: by one entry of what they ask for (empty: nothing that could be indexed).
create index wait_heads_open on wait_heads(tenant_group, source, probe) where state in ('opening', 'open');
create index wait_heads_taken on wait_heads(inbound_id) where inbound_id is not null;
create index wait_heads_wake on wait_heads(wake_at, stream_id) where wake_at is not null;

create table schedule_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  definition_id text not null, line text not null, timezone text not null, next_at timestamptz,
  last_run uuid) with (fillfactor = 70);
create index schedule_heads_group on schedule_heads(tenant_group, definition_id);
create index schedule_heads_wake on schedule_heads(wake_at, stream_id) where wake_at is not null;

create table admission_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  definition_id text not null, key text not null, holders int not null, queued int not null) with (fillfactor = 70);
create index admission_heads_wake on admission_heads(wake_at, stream_id) where wake_at is not null;

create table effect_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid not null, step text not null, key text not null, system text not null, tool text not null, reference text,
  claim uuid, lease_until timestamptz, gate uuid, kind text not null) with (fillfactor = 70);
create index effect_heads_run on effect_heads(run_id);
-- What an operator looks for.
create index effect_heads_in_doubt on effect_heads(tenant_group, stream_id) where state = 'in_doubt';

-- Notices: what people are told of, one stream per message and channel.
create table notice_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid, about text not null, subject uuid not null, channel text not null, tries int not null,
  raised_at timestamptz not null,
  claim uuid, lease_until timestamptz, gate uuid) with (fillfactor = 70);
create index notice_heads_newest on notice_heads(tenant_group, raised_at desc, stream_id);
create index notice_heads_run on notice_heads(run_id) where run_id is not null;
create index notice_heads_wake on notice_heads(wake_at, stream_id) where wake_at is not null;

-- The scheduler pages through what is due by (wake_at, stream_id); what waits on nobody's clock is in no index.
create index identity_heads_wake on identity_heads(wake_at, stream_id) where wake_at is not null;
create index definition_heads_wake on definition_heads(wake_at, stream_id) where wake_at is not null;
create index inbound_heads_wake on inbound_heads(wake_at, stream_id) where wake_at is not null;
create index run_heads_wake on run_heads(wake_at, stream_id) where wake_at is not null;
create index attempt_heads_wake on attempt_heads(wake_at, stream_id) where wake_at is not null;
create index decision_heads_wake on decision_heads(wake_at, stream_id) where wake_at is not null;
create index effect_heads_wake on effect_heads(wake_at, stream_id) where wake_at is not null;

-- What long streams added up to, so that they are not folded from their beginning. Derived: a row that is missing costs the
-- time of a fold. Rows are written and dropped, never changed, so two who write of one stream have nothing to wait for.
-- `schema` says what folded the state and how it is written; another release has rows of its own.
create table snapshots(
  stream_id uuid not null, schema bytea not null, version int not null,
  tenant_group uuid not null, digest bytea not null, content bytea not null,
  primary key (stream_id, schema, version));

-- Content by its SHA-256, kept once per tenant group.
create table blobs(
  tenant_group uuid not null, digest bytea not null, content bytea not null,
  primary key (tenant_group, digest));

-- Attempts that a runner may claim.
create table ready(
  attempt_id uuid primary key, subject text not null, tenant_group uuid not null,
  priority int not null default 0, queued_at timestamptz not null default minutebook_now())
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
create index ready_turn on ready(subject, priority desc, queued_at, attempt_id);

-- One row per statement that appended, until its envelopes were acked. (era, xid) finds in the history what it wrote.
create table unpublished(
  era int not null, xid xid8 not null default pg_current_xact_id(),
  written_at timestamptz not null default minutebook_now(),
  primary key (era, xid))
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Webhooks between the door and ingest. Their bodies are in `blobs`.
create table deliveries(
  id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  source text not null, adapter text not null, external_id text not null, event text not null, keys json not null,
  payload_digest bytea not null, payload_bytes int not null, body_sha256 text not null, traceparent text,
  received_at timestamptz not null default minutebook_now());
create index deliveries_received on deliveries(received_at);

-- Named leases of single replicas, such as the scheduler's.
create table leases(name text primary key, holder uuid not null, until timestamptz not null);

-- Which incarnation of each stream of the bus everything open was last woken for. It is no fact: it says what the bus was
-- like, and a row that is missing costs one wake of everything open.
create table bus_incarnations(
  stream text primary key, created text not null, recorded_at timestamptz not null default minutebook_now());

-- Credentials of users for MCP servers, sealed. No fact: the history says that a grant was given, under `secret_id`.
create table grant_secrets(
  secret_id uuid primary key, tenant_group uuid not null, grant_id uuid not null, sealed bytea not null,
  written_at timestamptz not null default minutebook_now());
create index grant_secrets_grant on grant_secrets(grant_id);

-- Keys of persons, sealed under the installation's own: their fields in the history are encrypted with them before they are
-- hashed. Destroying a key erases the fields and leaves every digest as it was.
create table subject_keys(
  subject uuid primary key, tenant_group uuid not null, sealed bytea,
  made_at timestamptz not null default minutebook_now(), destroyed_at timestamptz);
-- Every process asks every few seconds which keys were destroyed since.
create index subject_keys_destroyed on subject_keys(destroyed_at) where sealed is null;

-- Seals over the history: the root of a Merkle tree whose leaves are the tips of streams, in the order in which they were
-- found. `upto` is the boundary in transactions below which a seal covers everything.
create table seal_leaves(
  number bigint primary key, stream_id uuid not null, tenant_group uuid not null, version int not null,
  digest bytea not null);
create index seal_leaves_stream on seal_leaves(stream_id, number desc);
create table seals(
  number int primary key, sealed_at timestamptz not null default minutebook_now(), era int not null, upto xid8 not null,
  size bigint not null, root bytea not null, key_id text not null, signature bytea not null);

-- What a service could not do with a message, for good: to be seen, and driven again once it is mended.
create table dead_letters(
  id uuid primary key, tenant_group uuid, service text not null, durable text not null, subject text not null,
  stream_id uuid, code text not null, message text not null, letter json not null, tries int not null,
  first_at timestamptz not null default minutebook_now(), last_at timestamptz not null default minutebook_now());
create index dead_letters_newest on dead_letters(tenant_group, last_at desc, id);
create trigger append_only before update or delete on seals for each row execute function refuse_change();
create trigger never_emptied before truncate on seals execute function refuse_change();
create trigger append_only before update or delete on seal_leaves for each row execute function refuse_change();
create trigger never_emptied before truncate on seal_leaves execute function refuse_change();

-- The services' role. A role belongs to the whole cluster, so another database may have made it, or be making it now.
-- No password is set here: how it logs in is the installation's business.
-- Its statements are few and long: planning an append anew costs more than running it (0.77 against 0.33 ms for one event),
-- and plans made for arrays of unknown length probe indexes, which is what all of them want.
do $$ begin
  create role minutebook_app login;
  alter role minutebook_app set plan_cache_mode = force_generic_plan;
  alter role minutebook_app set jit = off;
exception when duplicate_object or unique_violation then null;
end $$;

grant select on workflow_history, clock_shift, eras, schema_migrations to minutebook_app;
grant insert on workflow_history to minutebook_app;
grant select, insert on blobs to minutebook_app;
grant select, insert, delete on snapshots to minutebook_app;
-- `for share` and `for update` need the right to update.
grant select, insert, update on identity_heads, definition_heads, inbound_heads, run_heads, attempt_heads, decision_heads,
  effect_heads, wait_heads, schedule_heads, admission_heads, notice_heads to minutebook_app;
grant select, insert, update, delete on ready, unpublished, deliveries, leases, bus_incarnations, dead_letters
  to minutebook_app;
grant select, insert, delete on grant_secrets to minutebook_app;
grant select, insert, update on subject_keys to minutebook_app;
grant select, insert on seals, seal_leaves to minutebook_app;
