//! The files of the console in `console/`: a page for operators, approvers and developers.
//!
//! Debug builds read them from the folder, so that a reload of the page shows a change; release builds contain them.
//! Not here: access to the page and its data (`interlingua_server`).

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
    pub(crate) media_type: &'static str,
}

/// Without the feature `console` there are no files.
#[cfg(not(feature = "console"))]
#[must_use]
pub(crate) fn find(_: &str) -> Option<Asset> {
    None
}
