-- The lines of runs that other replicas follow stand in the log once more, so that a follower reads them alone: one
-- row per flush and holder, however many runs it follows. A gateway of version 2 writes such lines to the runs' own rows, and
-- takes over from a later one what it needs: all lines are in "bytes".
ALTER TABLE il.log ADD COLUMN followed bytea NOT NULL DEFAULT '';

-- LZ4 costs less than what it saves in the write-ahead log; the older method costs more. Not every server is built with it.
DO $$ BEGIN
    EXECUTE $alter$ALTER TABLE il.lines ALTER COLUMN bytes SET COMPRESSION lz4$alter$;
    EXECUTE $alter$ALTER TABLE il.log ALTER COLUMN bytes SET COMPRESSION lz4, ALTER COLUMN bytes SET STORAGE EXTENDED,
        ALTER COLUMN followed SET COMPRESSION lz4$alter$;
EXCEPTION WHEN feature_not_supported OR syntax_error THEN
    EXECUTE $alter$ALTER TABLE il.log ALTER COLUMN followed SET STORAGE EXTERNAL$alter$;
END $$;

INSERT INTO il.migrations (version, reader) VALUES (3, 1);
