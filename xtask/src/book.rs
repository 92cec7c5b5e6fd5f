//! `cargo xtask book`: builds the documentation with mdBook and checks every link in the pages that it wrote.
//!
//! Links to other servers are not followed. Not here: links between Markdown files, which `tests/tidy` checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::report::Outcome;
use crate::{process, root, target, tools};

const LIMIT: Duration = Duration::from_secs(120);

/// Pages whose links mdBook writes for another place: every path (404), and all pages at once (print).
const SKIPPED: [&str; 2] = ["404.html", "print.html"];

/// A page of the built book: the targets of its links, and the anchors that other pages can link to.
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// Builds the book into `target/book`.
///
/// # Errors
/// mdBook cannot be installed, it fails, or a link of a page has no target.
pub(crate) fn build() -> Result<Outcome> {
    let mdbook = match tools::MDBOOK.installed() {
        Ok(mdbook) => mdbook,
        Err(error) => return Ok(Outcome::NotRun(format!("mdbook cannot be installed: {error:#}"))),
    };
    let folder = target().join("book");
    let mut command = Command::new(mdbook);
    process::run(command.args(["build", "--dest-dir"]).arg(&folder).arg(root()), LIMIT)?;

    let pages = pages(&folder)?;
    ensure!(pages.len() > 20, "only {} pages were built", pages.len());
    let dead = dead_links(&folder, &pages);
    if !dead.is_empty() {
        bail!("dead links in the book:\n  {}", dead.join("\n  "));
    }
    Ok(Outcome::Passed(format!("{} pages", pages.len())))
}

/// The HTML pages below a folder, by their path.
fn pages(folder: &Path) -> Result<BTreeMap<PathBuf, Page>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let html = std::fs::read_to_string(&path)?;
                let links = ["href", "src"].iter().flat_map(|name| attributes(&html, name)).collect();
                let anchors = ["id", "name"].iter().flat_map(|name| attributes(&html, name)).collect();
                found.insert(path, Page { links, anchors });
            }
        }
    }
    Ok(found)
}

/// The values of an attribute in the HTML that mdBook writes: always in double quotes.
fn attributes(html: &str, name: &str) -> Vec<String> {
    let before = format!(" {name}=\"");
    let values = html.split(&before).skip(1).filter_map(|rest| rest.split('"').next());
    values.map(|value| value.replace("&amp;", "&")).collect()
}

/// The links whose file or anchor does not exist.
fn dead_links(folder: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut dead = Vec::new();
    for (path, page) in pages {
        let name = path.strip_prefix(folder).unwrap_or(path);
        if SKIPPED.iter().any(|skipped| name == Path::new(skipped)) {
            continue;
        }
        for link in &page.links {
            if !leads_somewhere(path, link, pages) {
                dead.push(format!("{}: {link}", name.display()));
            }
        }
    }
    dead
}

/// Whether a link has a target in the book. Links to other servers count as valid.
fn leads_somewhere(page: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> bool {
    let is_elsewhere = link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:");
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    if is_elsewhere {
        return true;
    }

    let file = if file.is_empty() { page.to_path_buf() } else { resolve(page, file) };
    let file = if file.is_dir() { file.join("index.html") } else { file };
    match pages.get(&file) {
        Some(target) => anchor.is_empty() || target.anchors.contains(anchor),
        None => file.is_file(),
    }
}

/// A path relative to a page, without `..`.
fn resolve(page: &Path, file: &str) -> PathBuf {
    let mut resolved = page.parent().unwrap_or(page).to_path_buf();
    for part in Path::new(file.split('?').next().unwrap_or(file)).components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::Normal(name) => resolved.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let page = |links: &[&str], anchors: &[&str]| Page {
            links: links.iter().map(ToString::to_string).collect(),
            anchors: anchors.iter().map(ToString::to_string).collect(),
        };
        let folder = Path::new("/book");
        let links = ["b/c.html#here", "b/c.html#there", "#own", "missing.html", "https://example.com/x"];
        let pages = BTreeMap::from([
            (folder.join("a.html"), page(&links, &["own"])),
            (folder.join("b/c.html"), page(&["../a.html#own", "../a.html"], &["here"])),
        ]);

        assert_eq!(dead_links(folder, &pages), ["a.html: b/c.html#there", "a.html: missing.html"]);
    }

    #[test]
    fn attributes_are_read() {
        let html = "<a class=\"x\" href=\"b.html?a=1&amp;b=2\">href=\"no\"</a><img src=\"i.png\">";

        assert_eq!(attributes(html, "href"), ["b.html?a=1&b=2"]);
        assert_eq!(attributes(html, "src"), ["i.png"]);
    }
}
