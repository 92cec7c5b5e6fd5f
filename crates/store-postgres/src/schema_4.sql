-- How a run began, for lists of the runs of all owners, and an index for their order. Empty: a gateway of an earlier
-- version wrote the row.
ALTER TABLE il.runs ADD COLUMN preview text NOT NULL DEFAULT '';
CREATE INDEX runs_of_all ON il.runs (changed_at, id);

INSERT INTO il.migrations (version, reader) VALUES (4, 1);
