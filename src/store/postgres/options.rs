//! Settings of the PostgreSQL store. Not here: where they are read from (`crate::config`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::StoreMetrics;

/// Settings of [`super::Postgres`].
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the database is: `postgres://user:password@host:port/database?sslmode=require`.
    pub url: String,
    /// The schema that all tables are in.
    pub schema: String,
    /// How long a replica may be silent before others may take its runs over.
    pub lease: Duration,
    /// How many connections are used for reading.
    pub readers: usize,
    /// How certificates of the server are judged.
    pub tls: Arc<rustls::ClientConfig>,
    /// Counts transactions.
    pub metrics: Option<StoreMetrics>,
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may have a password.
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
