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

alter table effect_heads add column kind text not null default 'write';
alter table effect_heads alter column kind drop default;
create index identity_heads_group on identity_heads(tenant_group, kind, name);
-- What an operator looks for.
create index effect_heads_in_doubt on effect_heads(tenant_group, stream_id) where state = 'in_doubt';

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

create or replace function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only: % is refused', regexp_replace(tg_table_name, '_[0-9]+$', ''), tg_op
    using errcode = 'restrict_violation', hint = 'append a fact that corrects the earlier one';
end $$;

create trigger append_only before update or delete on seals for each row execute function refuse_change();
create trigger never_emptied before truncate on seals execute function refuse_change();
create trigger append_only before update or delete on seal_leaves for each row execute function refuse_change();
create trigger never_emptied before truncate on seal_leaves execute function refuse_change();

grant select, insert, update on notice_heads to minutebook_app;
grant select, insert, delete on grant_secrets to minutebook_app;
grant select, insert, update on subject_keys to minutebook_app;
grant select, insert on seals, seal_leaves to minutebook_app;
grant select, insert, update, delete on dead_letters to minutebook_app;
