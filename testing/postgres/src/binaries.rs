//! Where the programs of PostgreSQL are, and how they get there.
//!
//! Not here: starting them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};

use crate::folder;

/// The oldest major version that the gateway supports.
pub const OLDEST: u32 = 14;

/// Advice for a machine without permission to install packages.
const ADVICE: &str = "install PostgreSQL (Debian: apt-get install postgresql), or set INTERLINGUA_POSTGRES_BIN to the \
                      folder with its programs";

/// The programs of one PostgreSQL installation.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    /// Major version.
    pub version: u32,
}

impl Binaries {
    /// The newest installed version. Without one, installs it with apt. Found once per process.
    ///
    /// # Errors
    /// No version exists, and none can be installed: the error says what to do.
    pub fn installed() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Binaries, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| find_or_install().map_err(|error| format!("{error:#}")));
        found.as_ref().map_err(|error| anyhow!("{error}"))
    }

    /// The path of a program: `postgres`, `initdb`, `psql`, …
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn find_or_install() -> Result<Binaries> {
    if let Some(folder) = std::env::var_os("INTERLINGUA_POSTGRES_BIN") {
        let folder = PathBuf::from(folder);
        return of(&folder).with_context(|| format!("there is no PostgreSQL in {}: {ADVICE}", folder.display()));
    }
    if let Some(found) = newest() {
        return supported(found);
    }

    // Test binaries may run at the same time: one of them installs.
    let lock = File::create(folder::base()?.join("install.lock"))?;
    lock.lock()?;
    if newest().is_none() {
        println!("installing PostgreSQL with apt, once for this machine");
        install("postgresql").with_context(|| format!("there is no PostgreSQL: {ADVICE}"))?;
    }
    match newest() {
        Some(found) => supported(found),
        None => bail!("the package postgresql was installed, but its programs were not found: {ADVICE}"),
    }
}

fn supported(found: Binaries) -> Result<Binaries> {
    let Binaries { folder, version } = &found;
    if *version < OLDEST {
        bail!("PostgreSQL {version} in {} is older than {OLDEST}: {ADVICE}", folder.display());
    }
    Ok(found)
}

/// The newest version in the usual places.
fn newest() -> Option<Binaries> {
    // Debian and Red Hat keep several versions beside each other, outside of `PATH`.
    let mut folders = versions("/usr/lib/postgresql", "bin");
    folders.extend(versions("/opt/homebrew/opt", "bin"));
    folders.extend(versions("/usr", "bin").into_iter().filter(|folder| folder.starts_with("/usr/pgsql-")));
    folders.extend([PathBuf::from("/usr/local/pgsql/bin")]);
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.iter().filter_map(|folder| of(folder)).max_by_key(|found| found.version)
}

/// The folders `inner` of all folders in `outer`.
fn versions(outer: &str, inner: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(outer).into_iter().flatten().flatten();
    found.map(|entry| entry.path().join(inner)).collect()
}

/// The installation in a folder. `None`: a program is missing or does not start.
fn of(folder: &Path) -> Option<Binaries> {
    // A link leads to the folder where the other programs are.
    let initdb = std::fs::canonicalize(folder.join("initdb")).ok()?;
    let folder = initdb.parent()?.to_owned();
    let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
    let number: String = text.split(' ').nth(2)?.chars().take_while(char::is_ascii_digit).collect();
    Some(Binaries { folder, version: number.parse().ok()? })
}

/// A program outside of PostgreSQL's own folder, whose package is installed if it is missing.
///
/// # Errors
/// It is missing and cannot be installed: says what to do.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let find = || {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        // Debian keeps servers in a folder that is not in the path of ordinary users.
        let folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    let lock = File::create(folder::base()?.join("install.lock"))?;
    lock.lock()?;
    if find().is_none() {
        println!("installing {package} with apt, once for this machine");
        install(package).with_context(|| format!("there is no {name}: install the package {package}"))?;
    }
    find().with_context(|| format!("the package {package} was installed, but {name} was not found"))
}

fn install(package: &str) -> Result<()> {
    apt_get(&["update"])?;
    apt_get(&["install", "--yes", "--no-install-recommends", package])
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["--quiet=2", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .stdin(Stdio::null());
    let status = command.status().context("apt-get cannot be run here")?;
    if !status.success() {
        bail!("apt-get {}: {status}", arguments.join(" "));
    }
    Ok(())
}
