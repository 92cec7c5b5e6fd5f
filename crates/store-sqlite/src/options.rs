//! Settings for opening a SQLite file.

use interlingua_observe::metrics::StoreMetrics;

/// Options for opening the file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Maximum number of 4 KiB pages in the file; above it writes fail as on a full disk. `None`: no limit.
    pub max_pages: Option<u32>,
    /// Where transactions are counted. `None`: nowhere.
    pub metrics: Option<StoreMetrics>,
}

impl SqliteOptions {
    /// Limits the file's size, in pages of 4 KiB.
    #[must_use]
    pub const fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Counts transactions.
    #[must_use]
    pub fn metrics(mut self, metrics: StoreMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }
}
