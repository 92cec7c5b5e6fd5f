//! A store that several gateways share: a hub in this process, or a database. Not here: the gateways (`members`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlingua_testing_postgres::Database;

use crate::replicas::Hub;

/// The file with the URL of the database, in the folder of a gateway's configuration.
pub(super) const URL_FILE: &str = "url";

pub enum SharedStore {
    Hub(Arc<Hub>),
    Database(Database<'static>),
}

impl SharedStore {
    /// The keys of the table `store` in the configuration of each gateway. Writes the URL of the database into the
    /// folder.
    pub fn keys(&self, folder: &Path, lease: Duration, connections: u32) -> String {
        let Self::Database(database) = self else { return "kind = \"memory\"\n".to_owned() };
        std::fs::write(folder.join(URL_FILE), database.url()).expect("a file");
        let lease = lease.as_secs();
        format!(
            "kind = \"postgres\"\nurl = {{ file = \"{URL_FILE}\" }}\nlease = \"{lease}s\"\nconnections = {connections}\n"
        )
    }

    /// One more gateway on this store.
    pub fn join(&self, gateway: interlingua::Gateway) -> interlingua::Gateway {
        match self {
            Self::Hub(hub) => gateway.with_store(hub.join()),
            Self::Database(_) => gateway,
        }
    }
}
