//! Counts stilted sentences in comments, messages and documentation, for each folder, and compares the counts with
//! limits.
//!
//! A marker is a phrase such as "goes on" or "what is said". An opening is a doc comment that begins with a relative
//! clause ("What it holds."). A riddle is an opening of at most five words. Not here: forbidden words
//! ([`super::words`]).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::{Source, expect_none, sources};

/// Markers per 10,000 words, in every folder without a limit of its own.
const MAX_MARKERS: u64 = 8;

/// Openings per 1,000 doc comments, in every folder without a limit of its own.
const MAX_OPENINGS: u64 = 20;

/// Riddles in all folders without a limit of their own.
const MAX_RIDDLES: u64 = 29;

/// Markers that a folder may have beyond the rate: one sentence must not fail a folder of few words.
const SPARE_MARKERS: u64 = 2;

/// The number of printed lines.
const MAX_SHOWN: usize = 60;

/// Folders and files with limits of their own: markers per 10,000 words, openings per 1,000 doc comments, riddles.
const LIMITS: &[(&str, u64, u64, u64)] =
    &[("ARCHITECTURE.md", 0, 0, 0), ("core contracts", 0, 0, 0), ("core", 2, 3, 0), ("crates/engine", 8, 20, 4)];

/// The types that adapters implement or receive.
const CONTRACTS: &[&str] = &["exchange.rs", "connector.rs", "call.rs", "call/", "step.rs"];

/// Text that other programs or other people wrote, and the tests that name the phrases.
const SKIPPED: &[&str] = &["tests/transcripts", "tests/upgrades", "console/vendor", "tests/tidy/", "LICENSE"];

/// The first word of a relative or interrogative clause.
static OPENING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)^(?:what|how|which|who|whom|whose|those|of)\b(.*)").expect("a regular expression")
});

/// "How long" and "How many" of a constant ask for a number, and are plain.
static QUANTITY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^ (?:long|many|much|often|far|large|big)\b").expect("a regular expression"));

static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    let phrases = [
        r"stands? (?:in|at|there|beside|below|above)|stood|goes on|go on|going on|went on|for ever|so many|so long",
        r"who (?:asks|only|may|has|sends|shows|reads|can|waits)|made again|what (?:came|becomes?|became)|what of|is asked",
        r"was asked|is said|is looked|none is|of whom|is to be|are to be|to have again|let go|lets go|no one's|there need",
        r"nobody|whoever|anew|without one|(?:is|are) none(?: of)?|counts? for|behind (?:it|them)",
        r"(?:comes?|came) (?:of|to) (?:it|that|nothing)|came (?:so|whole)|(?:store|gateway|server)'s word|takes? note",
        r"(?:store|gateway) (?:knows|knew)|in (?:the |one )?line\b|said before|hears?|heard|mend(?:s|ed)?|of it all",
        r"by itself alone",
    ];
    Regex::new(&format!(r"\b(?:{})\b|(?:^|[.;:] )[Ww]hat (?:is|was|it|they)\b", phrases.join("|")))
        .expect("a regular expression")
});

/// The macros and functions whose strings people read.
static MESSAGE: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"\b(?:error|warn|info|debug|trace|println|eprintln|bail|anyhow|ensure)!|Fault::|with_detail|context\(";
    Regex::new(words).expect("a regular expression")
});

static LITERAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|`([^`]*)`"#).expect("a regular expression"));

static RUST_LITERAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)""#).expect("a regular expression"));

/// Code and links within a sentence.
static CODE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"`[^`]*`|\[[^\]]*\]\([^)]*\)").expect("a regular expression"));

static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z][A-Za-z'-]*").expect("a regular expression"));

static TAG: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[^>]*>").expect("a regular expression"));

/// A line of prose.
struct Line {
    number: usize,
    text: String,
    /// Whether the line begins a doc comment.
    opens: bool,
}

#[derive(Default, Clone, Copy)]
struct Figures {
    words: u64,
    markers: u64,
    doc_comments: u64,
    openings: u64,
    riddles: u64,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.markers += other.markers;
        self.doc_comments += other.doc_comments;
        self.openings += other.openings;
        self.riddles += other.riddles;
    }

    /// The counts of one line.
    fn of(line: &Line) -> Self {
        let prose = CODE.replace_all(&line.text, " ");
        let is_opening = line.opens && opens_with_a_clause(&line.text);
        Self {
            words: WORD.find_iter(&prose).count() as u64,
            markers: MARKER.find_iter(&prose).count() as u64,
            doc_comments: u64::from(line.opens),
            openings: u64::from(is_opening),
            riddles: u64::from(is_opening && line.text.split_whitespace().count() <= 5),
        }
    }
}

fn opens_with_a_clause(text: &str) -> bool {
    OPENING.captures(text.trim()).is_some_and(|found| !QUANTITY.is_match(&found[1]))
}

/// The folder or file whose limit applies to a file.
pub(super) fn part(path: &str) -> String {
    let names: Vec<&str> = path.split('/').collect();
    let contract = path.strip_prefix("core/src/").is_some_and(|below| CONTRACTS.iter().any(|c| below.starts_with(c)));
    match names[..] {
        _ if contract => "core contracts".to_owned(),
        [first @ ("src" | "crates" | "adapters" | "docs" | "tests"), second, _, ..] => format!("{first}/{second}"),
        [first, ..] => first.to_owned(),
        [] => String::new(),
    }
}

/// The prose of a file. Files of other kinds have none.
fn lines(source: &Source) -> Vec<Line> {
    let text = &source.text;
    match source.path.rsplit('.').next() {
        Some("rs") => rust(text),
        Some("md") => markdown(text),
        Some("toml") => toml(text),
        Some("js" | "css") if source.under("console/") => script(text),
        Some("html") if source.under("console/") => {
            numbered(text).map(|(n, l)| plain(n, &TAG.replace_all(l, " "))).collect()
        }
        _ => Vec::new(),
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn plain(number: usize, text: &str) -> Line {
    Line { number, text: text.trim().to_owned(), opens: false }
}

fn rust(text: &str) -> Vec<Line> {
    let (mut found, mut after_doc, mut in_code) = (Vec::new(), false, false);
    for (number, line) in numbered(text) {
        let trimmed = line.trim();
        let Some(comment) = trimmed.strip_prefix("//") else {
            after_doc = false;
            if MESSAGE.is_match(line) {
                let literals = RUST_LITERAL.captures_iter(line).map(|literal| literal[1].to_owned());
                found.extend(literals.filter(|text| text.matches(' ').count() > 1).map(|text| plain(number, &text)));
            }
            continue;
        };

        let is_doc = comment.starts_with(['/', '!']);
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim();
        if comment.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if !in_code && !comment.is_empty() {
            found.push(Line { number, text: comment.to_owned(), opens: is_doc && !after_doc });
        }
        after_doc = is_doc;
    }
    found
}

fn markdown(text: &str) -> Vec<Line> {
    let mut in_code = false;
    let prose = numbered(text).filter(|(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence && !line.trim().is_empty()
    });
    prose.map(|(number, line)| plain(number, line)).collect()
}

fn toml(text: &str) -> Vec<Line> {
    let comments = numbered(text).filter_map(|(number, line)| Some((number, line.trim().strip_prefix('#')?)));
    comments.map(|(number, comment)| plain(number, comment)).collect()
}

/// Comments of scripts, and strings of more than two words.
fn script(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        let trimmed = line.trim();
        if trimmed.starts_with("//") || trimmed.starts_with("/*") || trimmed.starts_with("* ") {
            found.push(plain(number, trimmed.trim_start_matches(['/', '*'])));
            continue;
        }
        for literal in LITERAL.captures_iter(line) {
            let text = literal.iter().skip(1).flatten().next().map(|text| text.as_str()).unwrap_or_default();
            if text.matches(' ').count() > 1 {
                found.push(plain(number, text));
            }
        }
    }
    found
}

#[test]
fn prose_stays_within_the_limits_of_its_folder() {
    let mut parts: BTreeMap<String, (Figures, Vec<String>)> = BTreeMap::new();
    for source in sources().iter().filter(|source| !SKIPPED.iter().any(|skipped| source.under(skipped))) {
        for line in lines(source) {
            let figures = Figures::of(&line);
            let (sum, worst) = parts.entry(part(&source.path)).or_default();
            sum.add(figures);
            if figures.markers > 0 || figures.openings > 0 {
                worst.push(format!("{}:{}: {}", source.path, line.number, line.text));
            }
        }
    }

    let (mut violations, mut riddles, mut riddle_lines) = (Vec::new(), 0, Vec::new());
    for (name, (sum, worst)) in &parts {
        let own = LIMITS.iter().find(|(part, ..)| part == name);
        let (markers, openings) =
            own.map_or((MAX_MARKERS, MAX_OPENINGS), |(_, markers, openings, _)| (*markers, *openings));
        let too_many_riddles = own.is_some_and(|(.., most)| sum.riddles > *most);
        if own.is_none() {
            riddles += sum.riddles;
            riddle_lines.extend(worst.iter().take(if sum.riddles > 0 { MAX_SHOWN } else { 0 }).cloned());
        }
        let rate = |count: u64, unit: u64, all: u64| count * unit / all.max(1);
        if sum.markers.saturating_sub(SPARE_MARKERS) * 10_000 > markers * sum.words
            || sum.openings * 1_000 > openings * sum.doc_comments.max(100)
            || too_many_riddles
        {
            violations.push(format!(
                "{name}: {} markers per 10,000 words (at most {markers}), {} openings per 1,000 (at most {openings}), {} riddles",
                rate(sum.markers, 10_000, sum.words),
                rate(sum.openings, 1_000, sum.doc_comments),
                sum.riddles,
            ));
            violations.extend(worst.iter().take(MAX_SHOWN).map(|line| format!("  {line}")));
        }
    }
    if riddles > MAX_RIDDLES {
        violations.push(format!("{riddles} riddles in all (at most {MAX_RIDDLES})"));
        violations.extend(riddle_lines);
    }

    expect_none(
        "write subject, verb, object; name the subject; begin no doc comment with a relative clause",
        violations,
    );
}

#[test]
fn stilted_sentences_are_counted() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let count = |source: &Source| {
        let mut sum = Figures::default();
        lines(source).iter().for_each(|line| sum.add(Figures::of(line)));
        (sum.markers, sum.openings, sum.riddles)
    };

    let rust = "/// What it is.\n/// Goes on for ever.\nfn f() {}\n/// How many runs fit.\n// It goes on.\nwarn!(\"the run goes on\");\n";
    assert_eq!(count(&source("src/a.rs", rust)), (4, 1, 1));
    assert_eq!(
        count(&source("src/a.rs", "/// ```\n/// // goes on\n/// ```\nlet a = \"it goes on here\";\n")),
        (0, 0, 0)
    );
    assert_eq!(count(&source("a.md", "It goes on.\n```\nIt goes on.\n```\n`goes on`\n")), (1, 0, 0));
    assert_eq!(count(&source("a.toml", "# It goes on.\na = 1\n")), (1, 0, 0));
    assert_eq!(
        count(&source("console/a.js", "// It goes on.\nlet a = 'the run goes on';\nlet b = 'goes on';\n")),
        (2, 0, 0)
    );
    assert_eq!(count(&source("console/a.html", "<p title=x>It goes on.</p>\n")), (1, 0, 0));
}
