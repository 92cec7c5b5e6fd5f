//! What is wrong with a configuration, and how it is told.
//!
//! Here is the form of a message and its rendering. What counts as a mistake is decided where the
//! values are checked; what must not be shown has been masked in the source before it comes here.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The gateway does not start.
    Error,
    /// The gateway starts, but somebody should have a look.
    Warning,
}

/// One mistake, or one thing worth a look, and its place in the file.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    severity: Severity,
    message: String,
    place: Option<Range<usize>>,
    label: Option<String>,
    also: Option<(Range<usize>, String)>,
    help: Option<String>,
}

impl Diagnostic {
    /// A mistake that keeps the gateway from starting.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message.into())
    }

    /// Something worth a look.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message.into())
    }

    fn new(severity: Severity, message: String) -> Self {
        Self { severity, message, place: None, label: None, also: None, help: None }
    }

    /// Says where it is, in bytes of the file. An empty range is taken for no place.
    #[must_use]
    pub fn at(mut self, place: &Range<usize>) -> Self {
        self.place = (!place.is_empty()).then(|| place.clone());
        self
    }

    /// Says what to do, right beside the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Points at a second place the first one disagrees with.
    #[must_use]
    pub fn also(mut self, place: &Range<usize>, label: impl Into<String>) -> Self {
        self.also = (!place.is_empty()).then(|| (place.clone(), label.into()));
        self
    }

    /// Adds a sentence of help under the place.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where it is, in bytes of the file; `None` where the whole file is meant.
    pub fn place(&self) -> Option<Range<usize>> {
        self.place.clone()
    }

    fn group<'a>(&'a self, name: &'a str, source: &'a str) -> Group<'a> {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        if let Some(place) = &self.place {
            let mut primary = AnnotationKind::Primary.span(within(place, source));
            if let Some(label) = &self.label {
                primary = primary.label(label.as_str());
            }
            let mut snippet = Snippet::source(source).path(name).annotation(primary);
            if let Some((place, label)) = &self.also {
                let other = AnnotationKind::Context.span(within(place, source));
                snippet = snippet.annotation(other.label(label.as_str()));
            }
            group = group.element(snippet);
        } else if let Some(label) = &self.label {
            group = group.element(Level::HELP.message(label.as_str()));
        }
        match &self.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }
}

/// Nobody reads further, and each one is rendered with the whole source at hand.
const MAX_SHOWN: usize = 100;

/// Keeps a place inside the source and on one line, so that rendering cannot fail and a table
/// of twenty lines is not quoted whole.
fn within(place: &Range<usize>, source: &str) -> Range<usize> {
    let start = boundary_before(source, place.start);
    let end = boundary_before(source, place.end).max(start);
    match source[start..end].find('\n') {
        // The end of a line is shown at its last character.
        Some(0) if start > 0 => boundary_before(source, start - 1)..start,
        Some(length) => start..start + length.max(1),
        None => start..end,
    }
}

/// The nearest place at or before `at` where a character of the source begins.
fn boundary_before(source: &str, at: usize) -> usize {
    (0..=at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0)
}

/// Everything that was found in one file, in the order of the file.
///
/// [`Display`](fmt::Display) renders it without colours; [`render`](Self::render) with them.
#[derive(Clone)]
pub struct Diagnostics {
    name: String,
    source: String,
    found: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Collects what was found in the file at `path`.
    ///
    /// `source` is what may be shown of the file: as long as the file itself, secrets masked.
    pub(super) fn new(path: &Path, source: String, mut found: Vec<Diagnostic>) -> Self {
        // Errors first and stable by place: what keeps the gateway from starting is read first.
        found.sort_by_key(|one| {
            let place = one.place.as_ref().map_or(usize::MAX, |place| place.start);
            (one.severity == Severity::Warning, place)
        });
        found.dedup_by(|one, other| one.message == other.message && one.place == other.place);
        Self { name: path.display().to_string(), source, found }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether something keeps the gateway from starting.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// What was found: mistakes before warnings, each in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter()
    }

    /// Line and column of a diagnostic of this file, both counted from 1, columns in characters.
    pub fn line_and_column(&self, one: &Diagnostic) -> Option<(usize, usize)> {
        let start = within(one.place.as_ref()?, &self.source).start;
        let before = &self.source[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Some((line, before[line_start..].chars().count() + 1))
    }

    /// The text for a terminal, with or without colours, ending with a line that counts.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for one in self.found.iter().take(MAX_SHOWN) {
            text.push_str(&renderer.render(&[one.group(&self.name, &self.source)]));
            text.push_str("\n\n");
        }
        if let more @ 1.. = self.found.len().saturating_sub(MAX_SHOWN) {
            text.push_str(&format!("and {more} more\n\n"));
        }
        let counted = [(Severity::Error, "error"), (Severity::Warning, "warning")]
            .into_iter()
            .filter_map(|(severity, word)| match self.count(severity) {
                0 => None,
                1 => Some(format!("1 {word}")),
                many => Some(format!("{many} {word}s")),
            })
            .collect::<Vec<_>>();
        if !counted.is_empty() {
            text.push_str(&format!("{} in {}\n", counted.join(" and "), self.name));
        }
        text
    }

    fn count(&self, severity: Severity) -> usize {
        self.found.iter().filter(|one| one.severity == severity).count()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Diagnostics").field("found", &self.found).finish_non_exhaustive()
    }
}

impl std::error::Error for Diagnostics {}
