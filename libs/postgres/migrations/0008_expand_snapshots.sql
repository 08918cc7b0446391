-- What long streams added up to, so that they are not folded from their beginning. Derived: a row that is missing costs the
-- time of a fold. Rows are written and dropped, never changed, so two who write of one stream have nothing to wait for.
-- `schema` says what folded the state and how it is written; another release has rows of its own.
create table snapshots(
  stream_id uuid not null, schema bytea not null, version int not null,
  tenant_group uuid not null, digest bytea not null, content bytea not null,
  primary key (stream_id, schema, version));

grant select, insert, delete on snapshots to minutebook_app;
