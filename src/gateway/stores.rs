//! Opening and looking at the store that the settings name. Not here: the stores themselves (`interlingua_store`).

use std::sync::Arc;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::Gateway;
use interlingua_base::tls::ClientTls;
use interlingua_config::{PostgresStore, Settings, StoreKind};
use interlingua_observe::metrics::Metrics;
use interlingua_store::{Memory, Store};
use interlingua_store_postgres::{Postgres, PostgresOptions};
use interlingua_store_sqlite::{Sqlite, SqliteOptions};

impl Gateway {
    /// Looks whether the store can be opened, without changing anything, where that is not known from the
    /// configuration. Returns a description of the store. Blocks.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) fn check_store(settings: &Settings) -> anyhow::Result<Option<String>> {
        if settings.store.postgres.is_none() {
            return Ok(None);
        }
        Ok(Some(Postgres::check(&Self::postgres_options(settings)?)?))
    }

    /// The connection options of the database in the settings.
    pub(crate) fn postgres_options(settings: &Settings) -> anyhow::Result<PostgresOptions> {
        let postgres = settings.store.postgres.as_ref().context("the store has no URL")?;
        options(postgres, None)
    }
}

pub(super) fn open(settings: &Settings, metrics: &Metrics) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match settings.store.kind {
        StoreKind::Memory => Arc::new(Memory::new()),
        StoreKind::Sqlite => {
            Arc::new(Sqlite::open(&settings.store.path, &SqliteOptions::default().metrics(metrics.store().clone()))?)
        }
        StoreKind::Postgres => {
            let settings = settings.store.postgres.as_ref().context("the store has no URL")?;
            Arc::new(Postgres::open(&options(settings, Some(metrics))?)?)
        }
    })
}

fn options(settings: &PostgresStore, metrics: Option<&Metrics>) -> anyhow::Result<PostgresOptions> {
    let tls = ClientTls::new(None, None).map_err(|(_, reason)| anyhow::anyhow!("TLS {reason}"))?;
    Ok(PostgresOptions {
        url: settings.url.expose_secret().to_owned(),
        schema: settings.schema.clone(),
        lease: settings.lease,
        // One writes, one listens.
        readers: settings.connections.saturating_sub(2),
        tls: Arc::new(tls.config(true)),
        metrics: metrics.map(|metrics| metrics.store().clone()),
    })
}
