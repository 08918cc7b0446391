-- Who holds a role is found without reading everybody: of users `holds` has `role:`, `group:` and `project:` with what they
-- have. It is null where a release wrote the row that did not say it; `rebuild` does.
alter table identity_heads add column holds text[];
update identity_heads set holds = '{}' where kind <> 'user';
update identity_heads i
   set holds = array(
         select had from (
           select 'role:' || role from json_array_elements_text(e.payload->'roles') role union
           select 'group:' || name from json_array_elements_text(e.payload->'groups') name union
           select 'project:' || project from json_array_elements_text(e.payload->'projects') project) held(had)
          order by had collate "C")
  from workflow_history e
 where i.kind = 'user' and e.stream_id = i.stream_id and e.version = 1 and e.type = 'identity.user_registered';
create index identity_heads_holds on identity_heads using gin (holds) where kind = 'user' and state = 'active';
create index identity_heads_untold on identity_heads(tenant_group, stream_id)
  where kind = 'user' and state = 'active' and holds is null;

-- Every process asks every few seconds which keys were destroyed since.
create index subject_keys_destroyed on subject_keys(destroyed_at) where sealed is null;
