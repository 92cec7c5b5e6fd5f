//! Facts about a file without its contents: its version, and its readers.
//!
//! Not here: the interval of checks, and the reaction to a change (`reload`, `callers`).

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The permission of everyone to read a file. Not that of its group: mounted secrets have it.
pub const READABLE_BY_OTHERS: u32 = 0o004;

/// Differs from one version of a file to the next: the time of the last change, length, inode and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(SystemTime, u64, u64, u64);

/// The version of a file; symbolic links are followed. `None`: there is no file.
#[must_use]
pub fn version(file: &Path) -> Option<Version> {
    let metadata = fs::metadata(file).ok()?;
    #[cfg(unix)]
    let (inode, device) = {
        use std::os::unix::fs::MetadataExt as _;
        (metadata.ino(), metadata.dev())
    };
    #[cfg(not(unix))]
    let (inode, device) = (0, 0);
    Some(Version(metadata.modified().ok()?, metadata.len(), inode, device))
}

/// The permission bits of a file. `None`: there is no file, or the system has no such bits.
#[must_use]
pub fn mode(file: &Path) -> Option<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        Some(fs::metadata(file).ok()?.permissions().mode())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        None
    }
}
