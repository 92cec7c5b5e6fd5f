//! Checks that what the repository cites exists: anchors of `docs/`, relative links, sections of public specifications.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::{expect_none, sources};

/// Public specifications whose sections may be cited.
const SPECIFICATIONS: &[&str] = &["RFC ", "WHATWG", "A2A specification", "ECMA-262", "PKCS #"];

/// The words before a number that make a citation of a section.
const CITATIONS: &[&str] = &["section ", "sections ", "rule ", "rules ", "page "];

/// All anchors of a Markdown page: explicit ones (`<a id="…">`), and those of headings by the rules of GitHub.
fn anchors(page: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut headings: HashMap<String, usize> = HashMap::new();
    for line in prose(page) {
        for rest in line.split("<a id=\"").skip(1) {
            found.insert(rest.split('"').next().unwrap_or_default().to_owned());
        }

        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let seen = headings.entry(anchor.clone()).or_default();
        found.insert(if *seen == 0 { anchor } else { format!("{anchor}-{seen}") });
        *seen += 1;
    }
    found
}

/// The lines of a Markdown page outside its code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The path and anchor of every `docs/….md#anchor` in a text.
fn citations(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("docs/").filter_map(|(start, _)| {
        let rest = &text[start..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/-._#".contains(c))).unwrap_or(rest.len());
        let (path, anchor) = rest[..end].split_once('#')?;
        path.ends_with(".md").then(|| (path, anchor.trim_end_matches('.')))
    })
}

/// The targets of the links of a Markdown line: `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::trim)
}

/// A path relative to the folder of a file, from the root of the repository.
fn resolve(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The comments of a Rust file: consecutive lines of comment joined, with the number of the first one.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut previous = 0;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        let Some((_, comment)) = line.split_once("//") else { continue };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        let whole_line = line.trim_start().starts_with("//");
        let continues = whole_line && previous + 1 == number && !comment.is_empty();
        match found.last_mut() {
            Some((_, joined)) if continues => {
                joined.push(' ');
                joined.push_str(comment);
            }
            _ => found.push((number, comment.to_owned())),
        }
        if whole_line {
            previous = number;
        }
    }
    found
}

/// The first sentence that cites a section without naming a public specification.
fn private_citation(comment: &str) -> Option<&str> {
    // A full stop inside a number does not end a sentence.
    comment.split(". ").find(|sentence| {
        let lower = sentence.to_ascii_lowercase();
        let cites = CITATIONS.iter().any(|word| {
            let mut places = lower.match_indices(word);
            places.any(|(start, _)| {
                let starts_word = start == 0 || !lower.as_bytes()[start - 1].is_ascii_alphanumeric();
                starts_word && lower[start + word.len()..].starts_with(|c: char| c.is_ascii_digit())
            })
        });
        cites && !SPECIFICATIONS.iter().any(|name| sentence.contains(name))
    })
}

#[test]
fn every_cited_anchor_exists() {
    let sources = sources();
    let pages: HashMap<&str, HashSet<String>> = sources
        .iter()
        .filter(|source| source.path.ends_with(".md"))
        .map(|source| (source.path.as_str(), anchors(&source.text)))
        .collect();

    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| !source.path.ends_with(".md") && !source.under("tests/tidy")) {
        for (path, anchor) in citations(&source.text) {
            if !pages.get(path).is_some_and(|anchors| anchors.contains(anchor)) {
                violations.push(format!("{} cites {path}#{anchor}", source.path));
            }
        }
    }

    expect_none("a cited anchor must exist", violations);
}

#[test]
fn the_summary_of_the_book_lists_every_page() {
    let sources = sources();
    let summary = sources.iter().find(|source| source.path == "docs/SUMMARY.md").expect("the summary");
    let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != "docs/SUMMARY.md";
    let pages = sources.iter().map(|source| source.path.as_str()).filter(|path| is_page(path));
    let missing = pages.filter(|path| !summary.text.contains(&format!("({})", path.trim_start_matches("docs/"))));
    expect_none("docs/SUMMARY.md must list every page", missing.map(str::to_owned));
}

#[test]
fn every_relative_link_resolves() {
    let sources = sources();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    let mut violations = Vec::new();
    for page in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for target in prose(&page.text).flat_map(links).filter(|target| !target.contains(':')) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
            let anchored = anchor.is_empty() || find(&path).is_some_and(|page| anchors(&page.text).contains(anchor));
            if !root.join(&path).exists() || !anchored {
                violations.push(format!("{} links to {target}", page.path));
            }
        }
    }

    expect_none("a relative link must resolve", violations);
}

#[test]
fn comments_cite_sections_of_public_specifications_only() {
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust() && !source.under("tests/tidy")) {
        for (number, comment) in comments(&source.text) {
            if let Some(sentence) = private_citation(&comment) {
                violations.push(format!("{}:{number} cites a section of nothing public: {sentence}", source.path));
            }
        }
    }

    expect_none("cite a public specification by name, or docs/ by anchor", violations);
}

#[test]
fn anchors_follow_the_rules_of_github() {
    let page = "# A «b» c, d_e\n## Same\n## Same\n```\n# code\n```\ntext <a id=\"here\"></a>\n### What is `lost`?\n";
    let mut found: Vec<_> = anchors(page).into_iter().collect();
    found.sort();

    assert_eq!(found, ["a-b-c-d_e", "here", "same", "same-1", "what-is-lost"]);
}

#[test]
fn citations_of_sections_are_recognized() {
    for allowed in ["in a token (RFC 9110, section 5.6.2)", "the section above", "RFC 6455, section 5.5.1. More"] {
        assert_eq!(private_citation(allowed), None, "{allowed}");
    }
    for refused in ["the table (section 12)", "Rule 3 says so", "Text. As on page 5.", "The API, sections 3 and 4"] {
        assert!(private_citation(refused).is_some(), "{refused}");
    }
}

#[test]
fn a_comment_is_read_over_its_lines() {
    let text = "//! First\n//! second.\n\nlet a = 1; // third\n/// fourth\nfn f() {}\n";
    let found = comments(text);

    assert_eq!(found[0], (1, "First second.".to_owned()));
    assert_eq!(found[1], (4, "third".to_owned()));
}
