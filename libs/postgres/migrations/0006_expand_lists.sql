-- Lists over 100,000 runs and events begin at their page. What is indexed does not change after a row was born, but for
-- `unmatched` and `finished_at`, once: updates of the rows stay in place.
create index run_heads_definition on run_heads(tenant_group, definition_id, created_at desc, stream_id);
create index run_heads_initiator on run_heads(tenant_group, initiator, created_at desc, stream_id);
create index run_heads_project on run_heads(tenant_group, project_id, created_at desc, stream_id) where project_id is not null;
-- Open runs are few beside those that have ended; the update that ends one moves its `wake_at` and is not in place anyway.
create index run_heads_unfinished on run_heads(tenant_group, created_at desc, stream_id) where finished_at is null;
create index run_heads_parent on run_heads(parent) where parent is not null;
create index inbound_heads_newest on inbound_heads(tenant_group, received_at desc, stream_id);
create index inbound_heads_unmatched on inbound_heads(tenant_group, received_at desc, stream_id) where unmatched is not null;
