//! The input of every check of the configuration, and the checks of single values.

use std::path::Path;
use std::time::Duration;

use interlingua_core::duration::Period;
use interlingua_core::size::Size;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use super::diagnostics::Diagnostic;
use super::document::OptionsRef;
use super::located::WithSpan;
use super::protocols::Protocols;
use super::secret::{self, Sources};
use super::tree::{RejectedEntries, TomlValue};

/// The input of every check, and the diagnostics found so far.
pub(super) struct Validator<'i, 'a> {
    pub(super) protocols: &'a Protocols,
    pub(super) env: &'a Sources<'a>,
    pub(super) folder: &'a Path,
    pub(super) rejected: RejectedEntries,
    pub(super) found: Vec<Diagnostic>,
    /// The protocols' own options, by [`OptionsRef`].
    pub(super) options: Vec<TomlValue<'i>>,
}

impl<'i> Validator<'i, '_> {
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// The options that `reference` points to, with their secrets inserted; an empty table with the span of `owner`
    /// without a reference.
    pub(super) fn options(&mut self, reference: Option<&OptionsRef>, owner: &WithSpan<String>) -> TomlValue<'i> {
        match reference.and_then(|reference| self.options.get(reference.0)) {
            Some(options) => {
                let mut options = options.clone();
                secret::insert_secrets(&mut options, self.folder, self.env, &mut self.found);
                options
            }
            None => Spanned::new(owner.span.clone(), DeValue::Table(DeTable::new())),
        }
    }

    /// Checks that a duration is not zero.
    pub(super) fn positive(&mut self, period: &WithSpan<Period>, key: &str) -> Duration {
        if period.value.0.is_zero() {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be zero")).at(&period.span).label("must be at least \"1ms\""),
            );
        }
        period.value.0
    }

    /// Checks that a duration is within bounds.
    pub(super) fn within(&mut self, period: &WithSpan<Period>, key: &str, min: Period, max: Period) -> Duration {
        if !(min..=max).contains(&period.value) {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be \"{}\"", period.value))
                    .at(&period.span)
                    .label(format!("must be between \"{min}\" and \"{max}\"")),
            );
        }

        period.value.0
    }

    /// Checks that a size is within bounds. Returns it in bytes.
    pub(super) fn size_between(&mut self, size: &WithSpan<Size>, key: &str, min: Size, max: Size) -> usize {
        if !(min..=max).contains(&size.value) {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be \"{}\"", size.value))
                    .at(&size.span)
                    .label(format!("must be between \"{min}\" and \"{max}\"")),
            );
        }

        size.value.bytes()
    }

    /// Checks that a size is not too small.
    pub(super) fn at_least(&mut self, size: &WithSpan<Size>, key: &str, min: Size) -> usize {
        if size.value < min {
            self.report(
                Diagnostic::error(format!("{key:?} is too small"))
                    .at(&size.span)
                    .label(format!("must be at least \"{min}\"")),
            );
        }

        size.value.bytes()
    }

    /// Checks that a number is within bounds.
    pub(super) fn between(&mut self, number: &WithSpan<u64>, key: &str, min: u64, max: u64) -> u64 {
        if !(min..=max).contains(&number.value) {
            let bounds = match max {
                u64::MAX => format!("must be at least {min}"),
                _ => format!("must be between {min} and {max}"),
            };
            self.report(
                Diagnostic::error(format!("{key:?} cannot be {}", number.value)).at(&number.span).label(bounds),
            );
        }

        number.value
    }

    /// Checks that a number is a share.
    pub(super) fn share(&mut self, number: &WithSpan<f64>, key: &str) -> f64 {
        if !(0.0..=1.0).contains(&number.value) {
            self.report(
                Diagnostic::error(format!("{key:?} cannot be {}", number.value))
                    .at(&number.span)
                    .label("must be between 0 and 1"),
            );
        }

        number.value
    }

    /// Checks that a number is within bounds that a `u32` has room for.
    pub(super) fn between_u32(&mut self, number: &WithSpan<u64>, key: &str, min: u32, max: u32) -> u32 {
        let value = self.between(number, key, u64::from(min), u64::from(max));
        u32::try_from(value).unwrap_or(max)
    }

    /// Parses an absolute http(s) URL that contains no user info.
    pub(super) fn url(&mut self, text: &WithSpan<String>, key: &str) -> Option<Url> {
        let scheme = if key == "public_url" { "https" } else { "http" };
        match parse_web_url(&text.value, scheme) {
            Ok(url) => {
                if self.env.remember_url(&url) {
                    self.report(
                        Diagnostic::warning(format!("the query of {key:?} holds a secret"))
                            .at(&text.span)
                            .label("use headers with { env } or { file }, which no log repeats"),
                    );
                }
                Some(url)
            }
            Err(label) => {
                let message = format!("{key:?} is not a URL the gateway can use");
                self.report(Diagnostic::error(message).at(&text.span).label(label));
                None
            }
        }
    }
}

/// Parses a URL. The error says what to write instead, and repeats the input only if it cannot hold a secret.
fn parse_web_url(text: &str, scheme: &str) -> Result<Url, String> {
    let simple = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:/-_[]".contains(&byte));
    let label = match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            if simple && !text.is_empty() && !text.contains("://") {
                format!("did you mean \"{scheme}://{text}\"?")
            } else {
                "must begin with http:// or https://".to_owned()
            }
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "a URL must not hold a password; use headers with { env } or { file }".to_owned()
        }
        Ok(url) if url.fragment().is_some() => "leave out what follows the #".to_owned(),
        Ok(url) => return Ok(url),
        Err(url::ParseError::RelativeUrlWithoutBase) if simple && !text.is_empty() => {
            format!("did you mean \"{scheme}://{}\"?", text.trim_start_matches('/'))
        }
        Err(url::ParseError::RelativeUrlWithoutBase) => "must begin with http:// or https://".to_owned(),
        Err(error) => error.to_string(),
    };

    Err(label)
}
