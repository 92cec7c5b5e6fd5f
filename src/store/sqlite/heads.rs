//! Runs as lists show them: their rows alone, without the lines of what was said. Not here: which runs are on a page
//! ([`super::reader`]).

use interlingua_core::id::RunId;
use interlingua_core::journal;
use rusqlite::{Connection, OptionalExtension};

use super::reader::{Failed, facts, record};
use crate::store::{StoreError, Stored, without_tools};

pub(super) fn heads(connection: &mut Connection, ids: &[RunId]) -> Result<Vec<Stored>, Failed> {
    let moment = connection.transaction()?;
    let mut row = moment.prepare_cached("SELECT number, about, hidden, head FROM runs WHERE id = ?1")?;
    let mut heads = Vec::with_capacity(ids.len());
    for id in ids {
        let found = row
            .query_row([id.0.as_bytes().as_slice()], |row| {
                let (number, about): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
                Ok((number, about, row.get::<_, bool>(2)?, row.get::<_, Option<Vec<u8>>>(3)?))
            })
            .optional()?;
        let Some((number, about, hidden, head)) = found else { continue };
        let record = match head {
            Some(lines) => journal::read(&lines).map_err(|why| StoreError::corrupt(format_args!("run {id}"), why))?,
            None => record(&moment, *id, number)?.head(),
        };
        heads.push(Stored { record, about: without_tools(facts(*id, &about, hidden)?) });
    }
    Ok(heads)
}
