//! Media types of request bodies.

/// The request media types an endpoint accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTypes {
    /// In lower case, without parameters. Errors about another or a missing type name the first one.
    pub exact: &'static [&'static str],
    /// Also accept every `application/…+json`.
    pub json_suffix: bool,
}

impl MediaTypes {
    /// `application/json` and every `application/…+json`.
    pub const JSON: Self = Self { exact: &["application/json"], json_suffix: true };

    /// True if the endpoint accepts this media type, given in lower case and without parameters.
    #[must_use]
    pub fn include(&self, media_type: &str) -> bool {
        self.exact.contains(&media_type) || (self.json_suffix && is_json_suffixed(media_type))
    }
}

/// True if the media type is JSON.
#[must_use]
pub fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || is_json_suffixed(media_type)
}

fn is_json_suffixed(media_type: &str) -> bool {
    media_type.starts_with("application/") && media_type.ends_with("+json")
}
