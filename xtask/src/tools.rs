//! Tools that are installed on demand into the cache folder, each at a pinned version. Not here: running them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;

/// A cargo subcommand, built from the registry once per version.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    /// Further arguments of `cargo install`.
    arguments: &'static [&'static str],
}

/// Tools are built without optimisation, which takes a third of the time and is fast enough.
pub(crate) const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", arguments: &[] };

pub(crate) const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2", arguments: &[] };

/// Without its server and its search, which the checks do not need and which take most of the time to build.
pub(crate) const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", arguments: &["--no-default-features"] };

impl Tool {
    /// The path of the binary, which is built if it is missing.
    pub(crate) fn installed(&self) -> Result<PathBuf> {
        let Self { name, version, arguments } = self;
        let folder = cache()?.join("tools").join(format!("{name}-{version}"));
        let binary = folder.join("bin").join(name);
        if !binary.exists() {
            println!("building {name} {version}, once for this machine (takes some minutes)");
            let mut install = Command::new("cargo");
            install.args(["install", "--quiet", "--debug", "--locked", "--root"]).arg(&folder);
            install.args(*arguments).arg(format!("{name}@{version}"));
            process::run(&mut install, Duration::from_secs(30 * 60))?;
        }
        Ok(binary)
    }
}

/// The cache folder shared by runs and clones, created if it is missing.
pub(crate) fn cache() -> Result<PathBuf> {
    let folder = std::env::var_os("INTERLINGUA_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("XDG_CACHE_HOME").map(|folder| PathBuf::from(folder).join("interlingua")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/interlingua")))
        .context("no home folder for the cache: set INTERLINGUA_CACHE")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// A stable short hash of a text (FNV-1a).
pub(crate) fn fingerprint(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// Fills a folder once with `make`. A folder that was not filled completely is recreated.
pub(crate) fn once(folder: PathBuf, make: impl FnOnce(&PathBuf) -> Result<()>) -> Result<PathBuf> {
    let marker = folder.join(".whole");
    if !marker.exists() {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        make(&folder)?;
        std::fs::write(&marker, "")?;
    }
    Ok(folder)
}
