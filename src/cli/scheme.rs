//! Checks the scheme of a URL of the command line before anything is sent.

use anyhow::bail;

/// Checks that a URL has the scheme http or https.
pub(super) fn check(url: &str) -> anyhow::Result<()> {
    match url.split_once("://") {
        Some((scheme, _)) if ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) => Ok(()),
        Some((scheme, _)) => bail!("{url}: {scheme:?} is no scheme of agents: write http:// or https://"),
        None => bail!("{url} has no scheme: write http://{url} or https://{url}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_needs_a_scheme() {
        assert!(check("http://h/a").is_ok() && check("HTTPS://h").is_ok());
        let said = |url: &str| check(url).expect_err("no scheme").to_string();
        assert_eq!(
            said("127.0.0.1:8080/a"),
            "127.0.0.1:8080/a has no scheme: write http://127.0.0.1:8080/a or https://127.0.0.1:8080/a"
        );
        assert!(said("ws://h").contains("write http:// or https://"));
    }
}
