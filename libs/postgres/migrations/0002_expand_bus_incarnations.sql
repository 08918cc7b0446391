-- Which incarnation of each stream of the bus everything open was last woken for. It is no fact: it says what the bus was
-- like, and a row that is missing costs one wake of everything open.
create table bus_incarnations(
  stream text primary key, created text not null, recorded_at timestamptz not null default minutebook_now());

grant select, insert, update, delete on bus_incarnations to minutebook_app;
