//! The HTTP methods that endpoints have.

/// The HTTP method of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET, which also serves HEAD.
    Get,
    /// With a request body.
    Post,
    /// With a request body.
    Put,
    /// With a request body.
    Patch,
    /// Usually without a request body.
    Delete,
}

impl Method {
    /// The method as in HTTP.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}
