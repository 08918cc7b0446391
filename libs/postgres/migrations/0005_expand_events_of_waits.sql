-- An event finds the waits that it may resume by one entry of what they ask for, so that it reads none of the thousands
-- that ask for another ticket; and the waits that took it, also long after it was routed.
alter table wait_heads add column probe text not null default '', add column inbound_id uuid;
drop index wait_heads_open;
create index wait_heads_open on wait_heads(tenant_group, source, probe) where state in ('opening', 'open');
create index wait_heads_taken on wait_heads(inbound_id) where inbound_id is not null;
