-- Waits on events, schedules and admission are streams of their own, with a head table each; and what lists search by.
create table wait_heads(
  stream_id uuid primary key, tenant_group uuid not null, tenant uuid not null,
  version int not null, appended int not null, state text not null, digest bytea not null, wake_at timestamptz,
  run_id uuid not null, step text not null, source text not null, event text) with (fillfactor = 70);
create index wait_heads_run on wait_heads(run_id);
-- Which waits an event of this name may resume; a wait that asks for no name is found under null.
create index wait_heads_open on wait_heads(tenant_group, source, event) where state in ('opening', 'open');
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

alter table definition_heads add column schedules int not null default 0;
alter table inbound_heads add column body_sha256 text not null default '', add column unmatched text;
-- An opening wait looks back over what came from its source.
create index inbound_heads_source on inbound_heads(tenant_group, source, received_at);
alter table run_heads add column variant text, add column parent uuid, add column search text[] not null default '{}';
-- `key=value` of a run's context, for finding it by its Jira key. It never changes, so updates of the row stay in place.
create index run_heads_search on run_heads using gin (search) where search <> '{}';
alter table decision_heads add column due_at timestamptz, add column escalated_to text;

grant select, insert, update on wait_heads, schedule_heads, admission_heads to minutebook_app;
