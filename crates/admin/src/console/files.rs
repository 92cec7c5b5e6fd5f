//! Finds and compresses the embedded files.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::RustEmbed;

use super::Asset;

#[derive(RustEmbed)]
#[folder = "../../console/"]
#[include = "*.html"]
#[include = "*.css"]
#[include = "*.js"]
#[include = "*.mjs"]
#[include = "*.svg"]
struct Files;

/// A file with the hash by which it is noticed that it has changed.
type HashedFile = ([u8; 32], Asset);

/// Files by their path, compressed once.
static FOUND: OnceLock<Mutex<HashMap<String, HashedFile>>> = OnceLock::new();

/// The file at a path without a leading slash, if it exists.
#[must_use]
pub(crate) fn find(path: &str) -> Option<Asset> {
    let path = if path.is_empty() { "index.html" } else { path };
    let file = Files::get(path)?;
    let hash = file.metadata.sha256_hash();
    let mut found = FOUND.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, asset)) = found.get(path).filter(|(known, _)| *known == hash) {
        return Some(asset.clone());
    }

    let bytes = Bytes::from(file.data.into_owned());
    let asset = Asset { gzip: compressed(&bytes), etag: etag(&hash), media_type: media_type(path), bytes };
    found.insert(path.to_owned(), (hash, asset.clone()));
    Some(asset)
}

fn compressed(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < bytes.len()).then(|| packed.into())
}

fn etag(hash: &[u8; 32]) -> String {
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn the_page_and_its_modules_are_there() {
        let page = find("").expect("the page");
        assert_eq!(page.media_type, "text/html; charset=utf-8");
        let module = find("vendor/lit-html/lit-html.js").expect("a vendored module");
        assert!(module.gzip.is_some_and(|packed| packed.len() < module.bytes.len()));
        assert!(find("../Cargo.toml").is_none() && find("nothing.js").is_none() && find("vendor").is_none());
    }

    #[test]
    fn everything_together_is_small() {
        let size = |asset: Asset| asset.gzip.unwrap_or(asset.bytes).len();
        let of_charts = |path: &str| path.starts_with("vendor/uplot/") || path == "views/metrics.js";
        let (charts, page): (Vec<_>, Vec<_>) = Files::iter().partition(|path| of_charts(path));
        let sum = |paths: Vec<_>| paths.iter().filter_map(|path: &Cow<'_, str>| find(path)).map(size).sum::<usize>();

        // The charts are loaded by the screen that has some.
        let (charts, page) = (sum(charts), sum(page));
        assert!(page <= 80_000, "{page} bytes without charts");
        assert!(page + charts <= 130_000, "{page} and {charts} bytes");
    }
}
