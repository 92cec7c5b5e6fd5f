//! Runs as lists show them: their rows, without the journal lines. Not here: which runs are on a page
//! ([`super::reader`]).

use interlingua_core::id::RunId;
use interlingua_core::journal;
use rusqlite::{Connection, OptionalExtension};

use super::reader::{QueryError, load_record, parse_info};
use interlingua_store::{StoreError, StoredRun, without_tools};

pub(super) fn heads(connection: &mut Connection, ids: &[RunId]) -> Result<Vec<StoredRun>, QueryError> {
    let snapshot = connection.transaction()?;
    let mut row = snapshot.prepare_cached("SELECT number, about, hidden, head FROM runs WHERE id = ?1")?;
    let mut heads = Vec::with_capacity(ids.len());
    for id in ids {
        let found = row
            .query_row([id.0.as_bytes().as_slice()], |row| {
                let (number, info): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
                Ok((number, info, row.get::<_, bool>(2)?, row.get::<_, Option<Vec<u8>>>(3)?))
            })
            .optional()?;

        let Some((number, info, hidden, head)) = found else { continue };
        let read = || -> Result<StoredRun, QueryError> {
            let record = match head {
                Some(lines) => {
                    journal::read(&lines).map_err(|error| StoreError::corrupt(format_args!("run {id}"), error))?
                }
                None => load_record(&snapshot, *id, number)?.head(),
            };
            Ok(StoredRun { record, info: without_tools(parse_info(*id, &info, hidden)?) })
        };
        match read() {
            Ok(head) => heads.push(head),
            // One damaged run must not hide all others.
            Err(QueryError::Store(error @ StoreError::Corrupt { .. })) => {
                tracing::error!(%error, "a run is left out of a list");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(heads)
}
