//! Who may read what is stored: the gateway's own user, nobody else. Conversations and credentials of receivers stand in
//! these files. Not here: what is in them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Makes a folder, and those it is in, if they are not there. One that is there stays as it is: others may use it too.
pub(super) fn folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a file to be written, or makes it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    restrict(path)?;
    Ok(file)
}

/// Makes the database's file, so that it is nobody else's from the start; SQLite gives the files beside it the same
/// rights. What an earlier version left open to others is closed.
pub(super) fn files(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        drop(open(path)?);
    }
    for end in ["-wal", "-shm"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        let beside = PathBuf::from(beside);
        if beside.exists() {
            restrict(&beside)?;
        }
    }
    Ok(())
}

/// Takes all rights from everybody but the owner of a file, if they have any.
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
