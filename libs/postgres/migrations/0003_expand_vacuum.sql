-- Rows of these two live for milliseconds, and what is dead is read past by every claim and every append until a vacuum:
-- a fixed number of dead rows, not a share of a table that is empty, calls for one.
alter table ready set (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
alter table unpublished set (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
