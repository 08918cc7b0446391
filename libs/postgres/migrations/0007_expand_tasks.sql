-- Manual steps that wait for a person: few, and the inbox begins with the one that has waited longest.
alter table run_heads add column tasks int not null default 0;
create index run_heads_tasks on run_heads(tenant_group, created_at, stream_id) where tasks > 0;
