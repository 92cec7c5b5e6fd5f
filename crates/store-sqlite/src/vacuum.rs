//! Shrinking the file: freed pages move to its end and are cut off, some with every round of retention. Not here: the
//! deletions ([`super::retention`]).

use std::path::Path;

use rusqlite::Connection;

use super::reader::QueryError;
use super::transaction::WriteTransaction;

/// The SQLite application id of the gateway's files: "ILGW".
pub(super) const APPLICATION_ID: i64 = 0x494c_4757;
/// A file created by an earlier version is rebuilt once if it is no larger than this, which takes some seconds at most.
const MAX_AUTOMATIC_VACUUM_BYTES: u64 = 512 << 20;
/// Number of free pages that stay in the file for reuse.
const SPARE_PAGES: i64 = 1024;
/// Maximum number of pages released at once: 8 MiB.
const BATCH_PAGES: i64 = 2048;
/// SQLite's `auto_vacuum` value for files whose free pages are released on request.
const INCREMENTAL: i64 = 2;

/// Sets up the file so that it can shrink. Has to run before the tables are created.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<(), rusqlite::Error> {
    let pragma_value = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    if pragma_value("auto_vacuum")? == INCREMENTAL {
        return Ok(());
    }

    let (pages, size) = (pragma_value("page_count")?, pragma_value("page_size")?);
    let bytes = u64::try_from(pages.saturating_mul(size)).unwrap_or(0);
    if pages > 0 && pragma_value("application_id")? != APPLICATION_ID {
        // The file belongs to another program: `migrate` refuses it shortly, and it must stay unchanged.
        return Ok(());
    }

    if bytes > MAX_AUTOMATIC_VACUUM_BYTES {
        tracing::info!(
            path = %path.display(), bytes,
            "the database was created by an earlier version and cannot shrink; to change that, stop the gateway and run: \
             sqlite3 FILE 'PRAGMA auto_vacuum = 2; VACUUM'"
        );
        return Ok(());
    }

    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    if pages > 0 {
        tracing::info!(path = %path.display(), "rebuilding the database once so that it can shrink");
        connection.execute_batch("VACUUM")?;
    }
    Ok(())
}

impl WriteTransaction<'_> {
    /// Releases some of the free pages. True if there are more.
    pub(super) fn shrink(&self) -> Result<bool, QueryError> {
        let pragma_value = |pragma: &str| self.sql.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let surplus = pragma_value("freelist_count")? - SPARE_PAGES;
        if surplus <= 0 || pragma_value("auto_vacuum")? != INCREMENTAL {
            return Ok(false);
        }

        // Each row of the result releases one page.
        let mut vacuum = self.sql.prepare(&format!("PRAGMA incremental_vacuum({})", surplus.min(BATCH_PAGES)))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
        Ok(surplus > BATCH_PAGES)
    }

    /// Bytes of the file that are in use.
    pub(super) fn used(&self) -> Result<u64, QueryError> {
        let pragma_value = |pragma: &str| self.sql.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let pages = pragma_value("page_count")? - pragma_value("freelist_count")?;
        Ok(u64::try_from(pages.saturating_mul(pragma_value("page_size")?)).unwrap_or(0))
    }
}
