

-- One row per migration. A gateway refuses a schema whose newest row has reader > its own latest version; a newer
-- version that it can read (reader <= its own) is fine: rolling upgrades.
CREATE TABLE il.migrations (
    version int PRIMARY KEY,
    reader int NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Ids of replicas are made by the replica (UUIDv7). flush: number of the last committed flush, so that a resent flush
-- is applied once, and a replica learns after a lost connection whether its last one was.
CREATE TABLE il.replicas (
    id uuid PRIMARY KEY,
    state text NOT NULL CHECK (state IN ('joining', 'active', 'fenced', 'left')),
    renewed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    flush bigint NOT NULL DEFAULT 0,
    version text NOT NULL,
    journal int NOT NULL,
    config bytea NOT NULL DEFAULT '',
    listens boolean NOT NULL DEFAULT true
) WITH (fillfactor = 50);   -- renewed in place (HOT): no column that changes is indexed

CREATE SEQUENCE il.versions;

CREATE TABLE il.runs (
    id uuid PRIMARY KEY,
    holder uuid,                       -- NULL: waits or has ended
    agent text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    protocol text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    ended boolean NOT NULL,
    hidden boolean NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    upto bigint NOT NULL,              -- events in lines
    size bigint NOT NULL,              -- bytes in lines + about: lists never sum
    route text COLLATE "C",
    remembered boolean NOT NULL DEFAULT false,
    tags text[] COLLATE "C" NOT NULL DEFAULT '{}', -- each a name, U+001F and a value
    about bytea NOT NULL,
    head bytea NOT NULL
) WITH (fillfactor = 85);
-- With the size, so that what each owner has is counted in the index.
CREATE INDEX runs_by_change ON il.runs (owner, changed_at, id) INCLUDE (size);
CREATE INDEX runs_by_creation ON il.runs (owner, created_at, id);
CREATE INDEX runs_by_session ON il.runs (owner, session, created_at, id);
CREATE INDEX runs_by_age ON il.runs (changed_at, id) WHERE ended;
CREATE INDEX runs_by_route ON il.runs (route, owner, changed_at, id) WHERE route IS NOT NULL;
CREATE INDEX runs_by_route_age ON il.runs (route, changed_at, id) WHERE ended AND route IS NOT NULL;
CREATE INDEX runs_by_holder ON il.runs (holder) WHERE holder IS NOT NULL;
CREATE INDEX runs_waiting ON il.runs (changed_at, id) WHERE state IN ('waiting', 'waiting_for_auth');

-- The lines of a run, complete up to runs.upto, and further for runs that are followed elsewhere.
CREATE TABLE il.lines (
    run uuid NOT NULL,
    first bigint NOT NULL,
    events int NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (run, first)
);

-- Latest lines of all runs of a replica, one row per flush; read only to take over. EXTERNAL: no pglz attempt per flush.
CREATE TABLE il.log (
    replica uuid NOT NULL,
    flush bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (replica, flush)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000);
ALTER TABLE il.log ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE il.follows (
    run uuid NOT NULL,
    replica uuid NOT NULL,             -- who follows
    until timestamptz NOT NULL,
    PRIMARY KEY (run, replica)
);

-- Keys and owners are compared bytewise everywhere.
CREATE TABLE il.documents (
    collection text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,   -- computed by the gateway (store::owner_in), not by SQL
    version bigint NOT NULL,
    created bigint NOT NULL,
    put_at bigint NOT NULL,
    writer uuid NOT NULL,              -- id of the write: finds out what became of it after a lost connection
    value bytea NOT NULL,
    size bigint NOT NULL GENERATED ALWAYS AS (octet_length(value)) STORED,
    PRIMARY KEY (collection, key)
) WITH (fillfactor = 85);
CREATE INDEX documents_by_owner ON il.documents (collection, owner, put_at) INCLUDE (size);
CREATE INDEX documents_by_age ON il.documents (collection, put_at);

-- One row per session with a line for turns: next is counted under its row lock, so numbers are in order of commit.
-- Deleted with the last ticket.
CREATE TABLE il.turn_lines (
    session text COLLATE "C" PRIMARY KEY,
    next bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE il.tickets (
    session text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    id uuid NOT NULL,                  -- made by the replica: finds out what became of it after a lost connection
    replica uuid NOT NULL,
    continues uuid,                    -- the run whose next turn it is
    PRIMARY KEY (session, number)
);
CREATE INDEX tickets_by_continued ON il.tickets (continues) WHERE continues IS NOT NULL;
CREATE INDEX tickets_by_replica ON il.tickets (replica);

CREATE TABLE il.signals (
    id uuid PRIMARY KEY,               -- made by the sender: a resent signal is one signal
    replica uuid NOT NULL,
    run uuid NOT NULL,
    kind text NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX signals_by_replica ON il.signals (replica);

CREATE TABLE il.leases (
    name text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL,
    until timestamptz NOT NULL
);

-- First statement of every flush. Fails, and with it the whole transaction, unless the replica is active and this is
-- its next flush. Errors are distinguished by SQLSTATE: IL001 fenced (or unknown), IL002 this flush was applied already,
-- IL003 a flush is missing (the database was restored to an earlier state).
CREATE FUNCTION il.renew(replica uuid, number bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE found_state text; found_flush bigint;
BEGIN
    UPDATE il.replicas SET renewed_at = clock_timestamp(), flush = number
    WHERE id = replica AND state = 'active' AND flush = number - 1;
    IF NOT FOUND THEN
        SELECT state, flush INTO found_state, found_flush FROM il.replicas WHERE id = replica;
        IF found_state IS DISTINCT FROM 'active' THEN
            RAISE EXCEPTION 'replica % is %', replica, coalesce(found_state, 'unknown') USING ERRCODE = 'IL001';
        ELSIF found_flush >= number THEN
            RAISE EXCEPTION 'flush % was applied', number USING ERRCODE = 'IL002';
        END IF;
        RAISE EXCEPTION 'flush % follows %', number, found_flush USING ERRCODE = 'IL003';
    END IF;
END $$;

-- Takes the last place in a session's line for turns, unless more than `most` others are in it. No row: there are more.
CREATE FUNCTION il.queue_turn(in_session text, ticket uuid, holder uuid, of_run uuid, most bigint)
RETURNS TABLE (place bigint, is_first boolean) LANGUAGE plpgsql AS $$
DECLARE next_place bigint; others bigint;
BEGIN
    INSERT INTO il.turn_lines AS l (session, next) VALUES (in_session, 1)
    ON CONFLICT (session) DO UPDATE SET next = l.next + 1 RETURNING next INTO next_place;
    SELECT count(*) INTO others FROM il.tickets t WHERE t.session = in_session;
    IF others > most THEN
        RETURN;
    END IF;
    INSERT INTO il.tickets (session, number, id, replica, continues)
    VALUES (in_session, next_place, ticket, holder, of_run);
    RETURN QUERY SELECT next_place, others = 0;
END $$;

-- Gives places in lines up. Those of other replicas stay.
CREATE FUNCTION il.leave_turns(sessions text[], places bigint[], holder uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM il.turn_lines l WHERE l.session = ANY (sessions) ORDER BY l.session FOR UPDATE;
    DELETE FROM il.tickets t USING unnest(sessions, places) AS left_at(session, place)
    WHERE t.session = left_at.session AND t.number = left_at.place AND t.replica = holder;
    DELETE FROM il.turn_lines l WHERE l.session = ANY (sessions)
        AND NOT EXISTS (SELECT FROM il.tickets t WHERE t.session = l.session);
END $$;

-- Writes and deletes (value NULL) documents: all of them, or none if one is not as expected: -1 anything, 0 absent,
-- otherwise a version. Callers have locked the keys. The version is NULL if one was not.
CREATE FUNCTION il.write_documents(
    write_id uuid, collections text[], keys text[], owners text[], contents bytea[], expected bigint[], written_at bigint)
RETURNS TABLE (last_version bigint, deleted bigint) LANGUAGE plpgsql AS $$
DECLARE known bigint; given bigint; gone bigint := 0; count_gone bigint;
BEGIN
    FOR i IN 1 .. coalesce(array_length(keys, 1), 0) LOOP
        IF expected[i] >= 0 THEN
            known := NULL;
            SELECT d.version INTO known FROM il.documents d
            WHERE d.collection = collections[i] AND d.key = keys[i] FOR UPDATE;
            IF coalesce(known, 0) <> expected[i] OR (expected[i] > 0 AND known IS NULL) THEN
                RETURN QUERY SELECT NULL::bigint, 0::bigint;
                RETURN;
            END IF;
        END IF;
    END LOOP;
    given := nextval('il.versions');
    FOR i IN 1 .. coalesce(array_length(keys, 1), 0) LOOP
        IF contents[i] IS NULL THEN
            DELETE FROM il.documents d WHERE d.collection = collections[i] AND d.key = keys[i];
            GET DIAGNOSTICS count_gone = ROW_COUNT;
            gone := gone + count_gone;
        ELSE
            given := nextval('il.versions');
            INSERT INTO il.documents AS d (collection, key, owner, version, created, put_at, writer, value)
            VALUES (collections[i], keys[i], owners[i], given, given, written_at, write_id, contents[i])
            ON CONFLICT (collection, key) DO UPDATE SET version = excluded.version, put_at = excluded.put_at,
                writer = excluded.writer, value = excluded.value;
        END IF;
    END LOOP;
    RETURN QUERY SELECT given, gone;
END $$;

INSERT INTO il.migrations (version, reader) VALUES (1, 1);
