//! File permissions: only the gateway's own user may read stored data, which contains conversations and the credentials
//! of webhook receivers. Not here: the contents.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Creates a directory and its parents. An existing directory keeps its permissions, because others may use it too.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a file for writing; creates it if necessary.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);

    let file = options.open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Creates the database file with private permissions from the start; SQLite gives the files beside it the same
/// permissions. Files that an earlier version left readable to others are restricted.
pub(super) fn create_database(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        drop(open(path)?);
    }

    for suffix in ["-wal", "-shm"] {
        let mut sibling = path.as_os_str().to_owned();
        sibling.push(suffix);

        let sibling = PathBuf::from(sibling);
        if sibling.exists() {
            restrict(&sibling)?;
        }
    }
    Ok(())
}

/// Removes all permissions of other users from a file.
fn restrict(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700))?;
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
