//! Giving back what the file does not need any more: freed pages go to its end and are cut off, some with every round of
//! retention. Not here: what is forgotten ([`super::retention`]).

use std::path::Path;

use rusqlite::Connection;

use super::reader::Failed;
use super::writer::Writing;

/// A file that an earlier version made is written anew, once, if it is no larger: that takes seconds at most.
const SMALL: u64 = 512 << 20;
/// So many free pages stay in the file, to be used again.
const SPARE: i64 = 1024;
/// So many pages are given back at once: 8 MiB.
const BATCH: i64 = 2048;
/// SQLite's number for files whose free pages are given back when they are asked for.
const INCREMENTAL: i64 = 2;

/// Sees to it that the file can shrink. Before its tables are made that is a setting.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<(), rusqlite::Error> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if number("auto_vacuum")? == INCREMENTAL {
        return Ok(());
    }
    let (pages, size) = (number("page_count")?, number("page_size")?);
    let bytes = u64::try_from(pages.saturating_mul(size)).unwrap_or(0);
    if pages > 0 && number("application_id")? != super::schema::APPLICATION {
        // Another program's: it is refused in a moment, and not touched.
        return Ok(());
    }
    if bytes > SMALL {
        tracing::info!(
            path = %path.display(), bytes,
            "the database was made by an earlier version and does not shrink; to change that, stop the gateway and run: \
             sqlite3 FILE 'PRAGMA auto_vacuum = 2; VACUUM'"
        );
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    if pages > 0 {
        tracing::info!(path = %path.display(), "the database is written anew, once, so that it can shrink");
        connection.execute_batch("VACUUM")?;
    }
    Ok(())
}

impl Writing<'_> {
    /// Gives back some of the pages that are free. True if there are more.
    pub(super) fn shrink(&self) -> Result<bool, Failed> {
        let number = |pragma: &str| self.sql.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let surplus = number("freelist_count")? - SPARE;
        if surplus <= 0 || number("auto_vacuum")? != INCREMENTAL {
            return Ok(false);
        }
        // Each row is a page.
        let mut vacuum = self.sql.prepare(&format!("PRAGMA incremental_vacuum({})", surplus.min(BATCH)))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        Ok(surplus > BATCH)
    }

    /// How many bytes of the file are in use.
    pub(super) fn used(&self) -> Result<u64, Failed> {
        let number = |pragma: &str| self.sql.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let pages = number("page_count")? - number("freelist_count")?;
        Ok(u64::try_from(pages.saturating_mul(number("page_size")?)).unwrap_or(0))
    }
}
