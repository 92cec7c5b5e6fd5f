-- Leases end with the replica that has them, and a replica knows since when it has been connected without a gap.

-- Whose it is. NULL: of a gateway of version 1; it ends by time alone.
ALTER TABLE il.leases ADD COLUMN replica uuid;

-- As il.renew(uuid, bigint). One that was not seen for a lease (in seconds) has joined again: it cannot know whether
-- others were connected meanwhile.
CREATE FUNCTION il.renew(replica uuid, number bigint, lease float8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE il.replicas SET joined_at = clock_timestamp()
    WHERE id = replica AND state = 'active' AND flush = number - 1
      AND renewed_at < clock_timestamp() - lease * interval '1 second';
    PERFORM il.renew(replica, number);
END $$;

INSERT INTO il.migrations (version, reader) VALUES (2, 1);
