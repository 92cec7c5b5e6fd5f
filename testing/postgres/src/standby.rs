//! A second server that follows the first one, and takes over from it.
//!
//! Not here: the servers themselves.

use anyhow::{Context, Result};

use crate::folder;
use crate::server::{ADMIN, Options, Server, succeeded};

/// Identifies the standby to its primary.
const NAME: &str = "standby";

impl Server {
    /// Starts a standby. With `synchronous`, commits on this server wait for it from now on.
    ///
    /// # Errors
    /// One of the servers does not do as it should, with its messages.
    pub fn standby(&self, options: &Options, synchronous: bool) -> Result<Server> {
        let folder = folder::create()?;
        let data = folder.join("data");
        let mut backup = folder::command(self.binaries.program("pg_basebackup"));
        backup.args(["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync", "--pgdata"]);
        let source = self.url(ADMIN) + "&application_name=" + NAME;
        let output = backup.arg(&data).arg("--dbname").arg(source).output()?;
        succeeded("pg_basebackup", output)?;

        let standby = Server::configured(self.binaries, folder, options)?;
        if synchronous {
            self.sql(ADMIN, &format!("ALTER SYSTEM SET synchronous_standby_names = '{NAME}'"))?;
            self.sql(ADMIN, "SELECT pg_reload_conf()")?;
        }
        Ok(standby)
    }

    /// Makes a standby the primary. The old one should be stopped by then. Commits no longer wait for a standby.
    ///
    /// # Errors
    /// It is no standby, or it was not promoted in time.
    pub fn promote(&self) -> Result<()> {
        self.sql(ADMIN, "ALTER SYSTEM RESET synchronous_standby_names").map(drop).or_else(|error| {
            // A standby may not be altered in every version; the settings of its primary then stay without effect.
            if format!("{error:#}").contains("recovery") { Ok(()) } else { Err(error) }
        })?;
        let promoted = self.sql(ADMIN, "SELECT pg_promote(true, 30)")?;
        (promoted == "t").then_some(()).context("the standby was not promoted within 30 s")
    }
}
