//! The pause that the text of an error names.

use std::time::Duration;

use crate::filter::truncated;

/// Upper limit for such a pause.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Only this prefix of a text is searched, in bytes.
const MAX_SEARCHED: usize = 2000;

/// The pause in "try again in 1.5s", "in 20 seconds" or "retry in 34.07s".
#[must_use]
pub fn retry_after(text: &str) -> Option<Duration> {
    let text = truncated(text, MAX_SEARCHED).to_ascii_lowercase();
    let rest =
        ["try again in ", "retry in "].iter().find_map(|words| Some(&text[text.find(words)? + words.len()..]))?;
    let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(rest.len());
    let number: f64 = rest[..end].trim_end_matches('.').parse().ok()?;
    let unit = rest[end..].trim_start();
    let factor = if unit.starts_with("ms") || unit.starts_with("milli") {
        0.001
    } else if unit.starts_with('m') {
        60.0
    } else {
        1.0
    };

    Some(Duration::try_from_secs_f64(number * factor).unwrap_or(MAX_RETRY_AFTER).min(MAX_RETRY_AFTER))
}
