//! Data URLs (RFC 2397) whose data is base64, which is how contents hold bytes.
//!
//! Not here: decoding the base64.

/// The parts of a data URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataUrl<'a> {
    /// The media type with its parameters. May be empty.
    pub full_type: &'a str,
    /// Base64.
    pub data: &'a str,
}

impl<'a> DataUrl<'a> {
    /// Splits a URL. `None`: it is another URL, or its data is not base64.
    ///
    /// ```
    /// use interlingua_core::data_url::DataUrl;
    ///
    /// let url = DataUrl::parse("data:text/plain;charset=utf-8;base64,aGk=").expect("a data URL");
    /// assert_eq!((url.media_type(), url.data), ("text/plain", "aGk="));
    /// assert_eq!(DataUrl::parse("data:text/plain,hi"), None);
    /// ```
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
        Some(Self { full_type: head.strip_suffix(";base64")?, data })
    }

    /// The media type without parameters. May be empty.
    #[must_use]
    pub fn media_type(&self) -> &'a str {
        self.full_type.split(';').next().unwrap_or(self.full_type)
    }
}
