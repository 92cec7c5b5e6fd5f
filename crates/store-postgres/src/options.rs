//! Settings of the PostgreSQL store. Not here: where they are read from (`interlingua_config`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interlingua_observe::metrics::StoreMetrics;

/// Settings of [`super::Postgres`].
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the database is: `postgres://user:password@host:port/database?sslmode=require`.
    pub url: String,
    /// The schema that all tables are in.
    pub schema: String,
    /// Time without a connection after which other replicas may take over the runs of a replica.
    pub lease: Duration,
    /// Number of connections for reading.
    pub readers: usize,
    /// Verification of the server's certificate.
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
