//! The latest lines of runs, which are only in the log of the replica that holds them. Not here: whose log is read, and
//! why ([`super::recover`], [`super::given_up`]).

use std::collections::HashMap;

use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::database::Database;
use super::tracked::int;
use interlingua_store::log;

const STORED: &str = "
    SELECT r.id, coalesce((SELECT l.first + l.events FROM il.lines l WHERE l.run = r.id ORDER BY l.first DESC LIMIT 1), 0),
           r.upto
    FROM il.runs r WHERE r.holder = $1 AND ($2::uuid[] IS NULL OR r.id = ANY ($2))";
const LOG: &str = "SELECT bytes FROM il.log WHERE replica = $1 ORDER BY flush";
const LINES: &str = "
    INSERT INTO il.lines (run, first, events, bytes)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::bytea[]) ON CONFLICT (run, first) DO NOTHING";
const UPTO: &str = "
    UPDATE il.runs r SET upto = u.upto,
        size = (SELECT coalesce(sum(octet_length(l.bytes)), 0) FROM il.lines l WHERE l.run = r.id)
    FROM unnest($1::uuid[], $2::bigint[]) AS u(run, upto) WHERE r.id = u.run";

/// Moves the latest lines of runs of a replica from its log to their own rows. `only`: of these runs.
pub(super) async fn move_to_rows(database: &Database, replica: Uuid, only: Option<&[Uuid]>) -> Result<(), Error> {
    let mut tails: HashMap<Uuid, Tail> = HashMap::new();
    for row in database.rows(STORED, &[(&replica, Type::UUID), (&only, Type::UUID_ARRAY)]).await? {
        let first = row.get::<_, i64>(1).unsigned_abs();
        tails.insert(
            row.get(0),
            Tail { first, next: first, known: row.get::<_, i64>(2).unsigned_abs(), lines: Vec::new() },
        );
    }
    for row in database.rows(LOG, &[(&replica, Type::UUID)]).await? {
        for frame in log::frames::<16>(row.get(0)) {
            let Some(tail) = tails.get_mut(&Uuid::from_bytes(frame.run)) else { continue };
            // Lines that are in rows of their own already are skipped.
            if frame.first == tail.next {
                tail.lines.extend_from_slice(frame.lines);
                tail.next += u64::from(frame.count);
            }
        }
    }

    // Also of runs whose lines are all in rows: their own row may not have counted them yet.
    let behind = tails.iter().filter(|(_, tail)| tail.next > tail.known);
    let (behind, upto): (Vec<Uuid>, Vec<i64>) = behind.map(|(run, tail)| (*run, int(tail.next))).unzip();
    let (mut runs, mut firsts, mut events, mut lines) = (vec![], vec![], vec![], vec![]);
    for (run, tail) in tails.into_iter().filter(|(_, tail)| tail.next > tail.first) {
        runs.push(run);
        firsts.push(int(tail.first));
        events.push(i32::try_from(tail.next - tail.first).unwrap_or(i32::MAX));
        lines.push(tail.lines);
    }
    let insert: [(&(dyn ToSql + Sync), Type); 4] = [
        (&runs, Type::UUID_ARRAY),
        (&firsts, Type::INT8_ARRAY),
        (&events, Type::INT4_ARRAY),
        (&lines, Type::BYTEA_ARRAY),
    ];
    database.rows(LINES, &insert).await?;
    database.rows(UPTO, &[(&behind, Type::UUID_ARRAY), (&upto, Type::INT8_ARRAY)]).await?;
    Ok(())
}

/// The lines of a run that are only in the log.
struct Tail {
    first: u64,
    next: u64,
    /// Number of events that the run's row has counted.
    known: u64,
    lines: Vec<u8>,
}
