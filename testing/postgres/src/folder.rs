//! Folders of servers below the target folder, and the user they belong to.
//!
//! Not here: the files in them.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, test_kill_process};

/// The user that servers run as: PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// `None`: the user of this process.
pub(crate) fn user() -> Option<User> {
    static USER: OnceLock<Option<User>> = OnceLock::new();
    *USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| {
            accounts.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| match fields[..] {
                [found, _, uid, gid, ..] if found == name => {
                    Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
                }
                _ => None,
            })
        };
        // The last one is the user without rights on all systems.
        find("postgres").or(Some(User { uid: 65534, gid: 65534 }))
    })
}

/// A command that runs as [`user`], without standard input, outside of the folder of this process, which that user may
/// not be able to enter.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = own_command(program);
    if let Some(user) = user() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// The same as the user of this process.
pub(crate) fn own_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).current_dir("/");
    // Variables like PGHOST and PGOPTIONS must not change what happens.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command
}

/// The folder that contains all folders of servers, created if it is missing: in the target folder, or in that for
/// temporary files if [`user`] cannot enter the target folder.
pub(crate) fn base() -> Result<PathBuf> {
    static BASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BASE.get_or_init(|| {
        let temporary = std::env::temp_dir().join("interlingua-postgres");
        let folder = [target().join("postgres"), temporary].into_iter().find(|folder| prepare(folder));
        folder.ok_or_else(|| "no folder for PostgreSQL can be created".to_owned())
    });
    found.clone().map_err(|error| anyhow!(error))
}

fn prepare(folder: &Path) -> bool {
    let made = std::fs::create_dir_all(folder)
        .and_then(|()| user().map_or(Ok(()), |user| chown(folder, Some(user.uid), Some(user.gid))));
    let usable = || command("test").arg("-w").arg(folder).status().is_ok_and(|status| status.success());
    made.is_ok() && usable()
}

/// The target folder of cargo: the one that the running test binary is in.
fn target() -> PathBuf {
    let binary = std::env::current_exe().unwrap_or_default();
    // Cargo marks its target folders.
    let marked = binary.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    marked.map_or_else(|| PathBuf::from("target"), Path::to_owned)
}

/// A new folder of a server. Its name starts with the id of this process.
pub(crate) fn create() -> Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = base()?;
    sweep(&base);
    let folder = base.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    // Left over by an earlier process of the same id.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    if let Some(user) = user() {
        chown(&folder, Some(user.uid), Some(user.gid))?;
    }
    Ok(folder)
}

/// Deletes folders of processes that have ended with their supervisor, as when the machine was switched off.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let creator = name.to_str().and_then(|name| name.split_once('-')).map(|(id, _)| id.parse().ok());
        let Some(Some(creator)) = creator else { continue };
        let lines = std::fs::read_to_string(entry.path().join("data/postmaster.pid")).unwrap_or_default();
        let server = lines.lines().next().and_then(|id| id.parse().ok());
        if !is_running(creator) && !server.is_some_and(is_running) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_running(id: i32) -> bool {
    // A process of another user exists, although it may not be signalled.
    Pid::from_raw(id).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Gives a file to [`user`].
pub(crate) fn give(path: &Path) -> Result<()> {
    match user() {
        Some(user) => Ok(chown(path, Some(user.uid), Some(user.gid))?),
        None => Ok(()),
    }
}
