//! The TLS of a running gateway: loaded when it starts, and again when its files change.
//!
//! Certificate, key and authorities are replaced together or not at all, by a whole new configuration, which new
//! connections use. Files are polled, since notifications follow inodes, which deployments replace, and are silent on
//! network file systems.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::files::{Contents, ServerMaterial, TlsFileError, TlsFiles, read_file};

/// Interval between two reads of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The configuration for new connections. Shared by the listener and what reloads it.
pub struct SharedTls {
    files: TlsFiles,
    offers_http2: bool,
    current: ArcSwap<LoadedTls>,
    /// Has a new value after each reload: the generation.
    changes: watch::Sender<u64>,
    watched: Mutex<WatchedHashes>,
}

/// A configuration that was loaded.
pub struct LoadedTls {
    /// For new connections.
    pub config: Arc<ServerConfig>,
    /// Verifies the certificates of clients. `None` if they are not asked for one.
    pub verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The number of reloads before.
    pub generation: u64,
}

/// The outcome of reading the files again.
#[derive(Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// The files hold what is in force already.
    Unchanged,
    /// New connections use the new files.
    Replaced,
    /// The files are unusable: the previous ones stay in use.
    Kept(TlsFileError),
}

/// Hashes of what the files held.
struct WatchedHashes {
    in_force: [u8; 32],
    /// Files that cannot be used, and how often they were seen.
    refused: Option<([u8; 32], u32)>,
}

impl SharedTls {
    /// Loads the files, for a listener that serves HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsFileError> {
        Self::load_files(files, true)
    }

    /// Loads the files, for a listener that serves HTTP/1.1 only.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn without_http2(files: TlsFiles) -> Result<Self, TlsFileError> {
        Self::load_files(files, false)
    }

    fn load_files(files: TlsFiles, offers_http2: bool) -> Result<Self, TlsFileError> {
        let contents = Contents::read(&files, &read_file)?;
        let watched = Mutex::new(WatchedHashes { in_force: contents.digest(), refused: None });
        let current = ArcSwap::from_pointee(LoadedTls::new(contents.parse(&files)?, offers_http2, 0));
        Ok(Self { files, offers_http2, current, changes: watch::Sender::new(0), watched })
    }

    /// The configuration in force.
    #[must_use]
    pub fn load(&self) -> Arc<LoadedTls> {
        self.current.load_full()
    }

    /// Has a new value after each reload.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reads the files and puts them in force if they have changed and can be used. Blocks.
    ///
    /// Files that cannot be used are logged once, when they are seen for the second time: a pair is replaced by two
    /// writes, and what lies between them is no error.
    pub fn reload(&self) -> TlsReload {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::read(&self.files, &read_file);
        let digest = match &contents {
            Ok(contents) => contents.digest(),
            Err(error) => Sha256::digest(error.to_string()).into(),
        };
        if digest == watched.in_force {
            watched.refused = None;
            return TlsReload::Unchanged;
        }

        match contents.and_then(|contents| contents.parse(&self.files)) {
            Ok(parsed) => {
                let generation = self.current.load().generation + 1;
                self.current.store(Arc::new(LoadedTls::new(parsed, self.offers_http2, generation)));
                self.changes.send_replace(generation);
                *watched = WatchedHashes { in_force: digest, refused: None };
                tracing::info!("the TLS files were reloaded: new connections use them");
                TlsReload::Replaced
            }
            Err(error) => {
                let seen = watched.refused.filter(|(refused, _)| *refused == digest).map_or(1, |(_, seen)| seen + 1);
                watched.refused = Some((digest, seen));
                if seen == 2 {
                    tracing::warn!("{error}: the old TLS certificate is kept");
                }
                TlsReload::Kept(error)
            }
        }
    }

    /// Reloads the files when they change. Never returns.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let this = Arc::clone(&self);
            // Reading may block, for example on a network file system.
            let _ = tokio::task::spawn_blocking(move || this.reload()).await;
        }
    }
}

impl fmt::Debug for SharedTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl LoadedTls {
    fn new(mut parsed: ServerMaterial, offers_http2: bool, generation: u64) -> Self {
        let protocols: &[&[u8]] = if offers_http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        parsed.config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self { config: Arc::new(parsed.config), verifier: parsed.verifier, generation }
    }
}
