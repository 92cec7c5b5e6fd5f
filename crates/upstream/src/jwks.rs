//! Reads what issuers of tokens publish, over HTTP. Every request is a connection of its own: they are minutes apart.
//!
//! Not here: what the documents mean, and when they are read ([`interlingua_base::ports::JwksFetcher`] has the callers'
//! side).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt as _};
use interlingua_core::fault::error_chain;
use reqwest::Client;
use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use url::Url;

use super::tls;
use interlingua_base::ports::JwksFetcher;

/// The limit of one request, in all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a document.
const MAX_LEN: usize = 1024 * 1024;

/// Reads over HTTP and HTTPS.
#[derive(Debug, Default)]
pub struct HttpJwksFetcher;

impl JwksFetcher for HttpJwksFetcher {
    fn get(&self, url: Url) -> BoxFuture<'static, Result<Bytes, String>> {
        async move { get(url.clone()).await.map_err(|reason| format!("{url}: {reason}")) }.boxed()
    }
}

async fn get(url: Url) -> Result<Bytes, String> {
    let client = Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .tls_backend_preconfigured(tls::client_config(url.scheme() == "https"))
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| error_chain(&error))?;

    let request = client.get(url).header(ACCEPT, "application/json, application/jwk-set+json");
    let mut response = request.send().await.map_err(|error| error_chain(&error.without_url()))?;
    if !response.status().is_success() {
        return Err(format!("answered {}", response.status()));
    }

    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| error_chain(&error.without_url()))? {
        if body.len() + piece.len() > MAX_LEN {
            return Err("the answer is larger than 1 MiB".to_owned());
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers one connection with these bytes, and then does nothing.
    async fn serving(answer: Vec<u8>) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.expect("a request");
            assert!(read > 0);
            // The client may leave before the end.
            let _ = stream.write_all(&answer).await;
            std::future::pending::<()>().await;
        });
        Url::parse(&format!("http://{address}/jwks")).expect("a URL")
    }

    #[tokio::test]
    async fn a_document_is_read_whole() {
        let url = serving(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"keys\":[]}".to_vec()).await;
        assert_eq!(HttpJwksFetcher.get(url).await.as_deref(), Ok(&b"{\"keys\":[]}"[..]));
    }

    #[tokio::test]
    async fn failures_redirects_and_long_documents_are_refused() {
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(2 * MAX_LEN));
        for (answer, reason) in [
            ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", "answered 500"),
            ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", "answered 302"),
            (long.as_str(), "larger than 1 MiB"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n{", ""),
            ("SSH-2.0-server\r\n", ""),
        ] {
            let url = serving(answer.as_bytes().to_vec()).await;
            let began = Instant::now();
            let failed = tokio::time::timeout(Duration::from_secs(8), HttpJwksFetcher.get(url)).await;
            let failed = failed.expect("an answer in time").expect_err("a failure");
            assert!(failed.contains(reason), "{failed}");
            assert!(began.elapsed() < TIMEOUT + Duration::from_secs(1));
        }
    }

    #[tokio::test]
    async fn a_server_that_is_gone_is_a_reason() {
        let url = Url::parse("http://127.0.0.1:1/jwks").expect("a URL");
        let failed = HttpJwksFetcher.get(url).await.expect_err("a failure");
        assert!(failed.starts_with("http://127.0.0.1:1/jwks: "), "{failed}");
    }
}
