//! Data URLs (RFC 2397) whose data is base64, the form in which contents hold bytes, and media types.
//!
//! Clients write both in many ways: `image/jpg`, `IMAGE/PNG`, base64 with line breaks, without padding, or in the
//! alphabet of URLs. Agents take one form alone, so every connector and client protocol reads them here. Not here:
//! decoding base64.

use std::borrow::Cow;

/// Names of media types that programs use beside the registered ones.
const ALIASES: &[(&str, &str)] = &[
    ("image/jpg", "image/jpeg"),
    ("image/pjpeg", "image/jpeg"),
    ("image/jfif", "image/jpeg"),
    ("image/x-png", "image/png"),
    ("image/x-webp", "image/webp"),
    ("image/svg", "image/svg+xml"),
    ("audio/mp3", "audio/mpeg"),
    ("audio/x-mp3", "audio/mpeg"),
    ("audio/x-wav", "audio/wav"),
    ("audio/wave", "audio/wav"),
    ("audio/vnd.wave", "audio/wav"),
    ("application/x-pdf", "application/pdf"),
    ("text/json", "application/json"),
];

/// The parts of a data URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataUrl<'a> {
    /// The media type with its parameters. May be empty.
    pub full_type: Cow<'a, str>,
    /// Base64 in the standard alphabet, with padding. Data that is no base64 is kept unchanged.
    pub data: Cow<'a, str>,
}

impl<'a> DataUrl<'a> {
    /// Splits a URL. `None`: it is another URL, or its data is not base64.
    ///
    /// ```
    /// use interlingua_adapter_kit::data_url::DataUrl;
    ///
    /// let url = DataUrl::parse("data:text/plain;charset=utf-8;base64,aGk=").expect("a data URL");
    /// assert_eq!((url.media_type(), &*url.data), ("text/plain", "aGk="));
    /// let url = DataUrl::parse("DATA:IMAGE/JPG;base64,aG\nk").expect("a data URL");
    /// assert_eq!((url.media_type(), &*url.data), ("image/jpeg", "aGk="));
    /// assert_eq!(DataUrl::parse("data:text/plain,hi"), None);
    /// ```
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let (head, data) = rest(url)?.split_once(',')?;
        let (full_type, _) = head.rsplit_once(';').filter(|(_, word)| word.trim().eq_ignore_ascii_case("base64"))?;
        Some(Self { full_type: media_type(full_type.trim()), data: base64(data) })
    }

    /// The media type without parameters. May be empty.
    #[must_use]
    pub fn media_type(&self) -> &str {
        self.full_type.split(';').next().unwrap_or_default()
    }
}

/// True for a data URL, whatever its data is.
#[must_use]
pub fn is_data_url(url: &str) -> bool {
    rest(url).is_some()
}

/// A URL in the form that agents take. Links, and data that is no base64, are unchanged.
#[must_use]
pub fn normal(url: &str) -> Cow<'_, str> {
    let Some(DataUrl { full_type, data }) = DataUrl::parse(url) else { return Cow::Borrowed(url) };
    let is_normal = matches!((&full_type, &data), (Cow::Borrowed(_), Cow::Borrowed(_)))
        && url.len() == "data:;base64,".len() + full_type.len() + data.len()
        && url.starts_with("data:")
        && url[..url.len() - data.len()].ends_with(";base64,");
    if is_normal { Cow::Borrowed(url) } else { Cow::Owned(format!("data:{full_type};base64,{data}")) }
}

fn rest(url: &str) -> Option<&str> {
    let url = url.trim_start();
    let (scheme, rest) = url.split_at_checked("data:".len())?;
    scheme.eq_ignore_ascii_case("data:").then_some(rest)
}

/// A media type by its registered name, in lower case. Parameters stay.
#[must_use]
pub fn media_type(full_type: &str) -> Cow<'_, str> {
    let (name, parameters) = full_type.split_at(full_type.find(';').unwrap_or(full_type.len()));
    let trimmed = name.trim();
    let lower = trimmed.to_ascii_lowercase();
    let known = ALIASES.iter().find(|(alias, _)| *alias == lower).map(|(_, registered)| *registered);
    match known {
        None if lower == name => Cow::Borrowed(full_type),
        _ => Cow::Owned(known.unwrap_or(&lower).to_owned() + parameters),
    }
}

/// Base64 in the standard alphabet, with padding and without white space. Text that is no base64 is returned unchanged.
#[must_use]
pub fn base64(data: &str) -> Cow<'_, str> {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = data.trim_end_matches('=');
    if digits.bytes().all(is_digit) && data.len().is_multiple_of(4) && data.len() - digits.len() <= 2 {
        return Cow::Borrowed(data);
    }

    let mut standard = String::with_capacity(data.len() + 2);
    let mut bytes = data.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'-' => b'+',
            b'_' => b'/',
            // Of a URL: `%2B`, `%2F`, `%3D`, `%0A`.
            b'%' => match (bytes.next(), bytes.next().map(|byte| byte.to_ascii_uppercase())) {
                (Some(b'2'), Some(b'B')) => b'+',
                (Some(b'2'), Some(b'F')) => b'/',
                (Some(b'3'), Some(b'D')) => b'=',
                (Some(b'2'), Some(b'0')) | (Some(b'0'), Some(b'A' | b'D')) => b' ',
                _ => return Cow::Borrowed(data),
            },
            other => other,
        };
        match byte {
            b'=' => {}
            byte if byte.is_ascii_whitespace() => {}
            byte if is_digit(byte) => standard.push(char::from(byte)),
            _ => return Cow::Borrowed(data),
        }
    }

    match standard.len() % 4 {
        0 => {}
        2 => standard.push_str("=="),
        3 => standard.push('='),
        _ => return Cow::Borrowed(data),
    }
    Cow::Owned(standard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_written_as_agents_take_it() {
        for (url, wanted) in [
            ("data:image/jpg;base64,AAAA", "data:image/jpeg;base64,AAAA"),
            ("data:IMAGE/PNG;base64,AAAA", "data:image/png;base64,AAAA"),
            ("DATA:image/png;BASE64,AAAA", "data:image/png;base64,AAAA"),
            (" data: image/png ; base64,AAAA", "data:image/png;base64,AAAA"),
            ("data:image/png;base64,AA\r\nAA\n", "data:image/png;base64,AAAA"),
            ("data:image/png;base64,AAA", "data:image/png;base64,AAA="),
            ("data:image/png;base64,AA", "data:image/png;base64,AA=="),
            ("data:image/png;base64,-_8", "data:image/png;base64,+/8="),
            ("data:image/png;base64,%2B%2f8%3D", "data:image/png;base64,+/8="),
            ("data:text/plain;charset=UTF-8;base64,aGk=", "data:text/plain;charset=UTF-8;base64,aGk="),
            ("data:image/png;base64,no base64!", "data:image/png;base64,no base64!"),
            ("data:image/png;base64,AAAAA", "data:image/png;base64,AAAAA"),
            ("data:image/svg+xml,<svg/>", "data:image/svg+xml,<svg/>"),
            ("data:;base64,AAAA", "data:;base64,AAAA"),
            ("https://a/B.JPG", "https://a/B.JPG"),
            ("", ""),
        ] {
            assert_eq!(normal(url), wanted, "{url}");
            assert!(matches!(normal(wanted), Cow::Borrowed(_)), "{wanted}");
        }
    }

    #[test]
    fn media_types_have_one_name() {
        assert_eq!(media_type("Audio/X-WAV"), "audio/wav");
        assert_eq!(media_type("Text/Plain; charset=X"), "text/plain; charset=X");
        assert!(matches!(media_type("image/png"), Cow::Borrowed(_)));
        assert!(is_data_url("DATA:x,y") && !is_data_url("dat") && !is_data_url("https://a"));
    }
}
