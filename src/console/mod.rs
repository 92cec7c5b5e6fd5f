//! The files of the console: a page for operators, approvers and developers, served as they are in `console/`.
//!
//! Debug builds read them from the folder, so that a change shows with a reload of the page; release builds have them
//! within. Not here: who may use the page and what it reads (`crate::server`).

#[cfg(feature = "console")]
mod files;

#[cfg(feature = "console")]
pub(crate) use self::files::find;

use bytes::Bytes;

/// A file of the console.
#[derive(Clone, Debug)]
pub(crate) struct Asset {
    /// The content.
    pub(crate) bytes: Bytes,
    /// The content compressed by gzip. `None` if that is not smaller.
    pub(crate) gzip: Option<Bytes>,
    /// A hash of the content, in quotes as HTTP writes it.
    pub(crate) etag: String,
    /// The media type.
    pub(crate) media_type: &'static str,
}

/// Without the feature `console` there are no files.
#[cfg(not(feature = "console"))]
#[must_use]
pub(crate) fn find(_: &str) -> Option<Asset> {
    None
}
