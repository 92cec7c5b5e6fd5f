//! Requests that two readers of HTTP/1.1 could understand differently (RFC 9112, sections 5 to 7 and 11.2): lengths
//! that contradict one another, spellings of `chunked`, line ends, control characters, forms of the target.
//!
//! Each form hides a second request where one of the readers would see it. Shared by the tests of behaviour and the
//! fault runs (`faults/`). Not here: sending them.

/// The request that no reader may serve.
pub const HIDDEN: &str = "GET /hidden-request HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Stands for the number of a form, in as many bytes.
pub const MARK: &str = "form-####";

/// One of them.
pub struct Form {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// A POST that starts a run, with these framing headers and this body.
fn post(name: &str, framing: &str, body: &str) -> Form {
    let head = "POST /agents/friday/process HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    Form { name: name.to_owned(), bytes: format!("{head}{framing}\r\n{body}").into_bytes() }
}

/// The body of a run, with a mark that is replaced by the number of the form.
fn run() -> String {
    format!(r#"{{"input":[{{"role":"user","content":[{{"type":"text","text":"{MARK}"}}]}}]}}"#)
}

/// Lengths that are no numbers, or several.
fn lengths() -> Vec<Form> {
    let (body, length) = (run(), run().len());
    let values = [
        format!("+{length}"),
        format!("-{length}"),
        format!("{length}, {}", length + 1),
        format!("{length},"),
        format!(",{length}"),
        format!("{length} {length}"),
        format!("0x{length:x}"),
        format!("{length}.0"),
        format!("{length}e0"),
        format!("{length};"),
        format!("\"{length}\""),
        format!("'{length}'"),
        format!("{length}\u{b}"),
        format!("{length}\0"),
        format!("{length}_0"),
        format!("{length}x"),
        String::new(),
        "99999999999999999999999999".to_owned(),
        "18446744073709551616".to_owned(),
        "-0".to_owned(),
        "+0".to_owned(),
        "NaN".to_owned(),
        "٥".to_owned(),
    ];
    let mut forms: Vec<Form> = values
        .iter()
        .map(|value| {
            post(&format!("length {value:?}"), &format!("content-length: {value}\r\n"), &format!("{body}{HIDDEN}"))
        })
        .collect();

    for (first, second) in [(length, length + HIDDEN.len()), (length + HIDDEN.len(), length), (0, length), (length, 0)]
    {
        for separator in ["\r\ncontent-length: ", "\r\nContent-Length:", ", "] {
            let framing = format!("content-length: {first}{separator}{second}\r\n");
            forms.push(post(&format!("lengths {first}{separator:?}{second}"), &framing, &format!("{body}{HIDDEN}")));
        }
    }
    forms
}

/// A length and an encoding: the body ends early for a reader of one of them.
fn lengths_and_encodings() -> Vec<Form> {
    let encodings = [
        "transfer-encoding: chunked",
        "Transfer-Encoding: Chunked",
        "transfer-encoding:chunked",
        "transfer-encoding:\tchunked",
        "transfer-encoding: chunked ",
        "transfer-encoding: chunked\t",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunkedx",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: chunked;q=1",
        "transfer-encoding: ,chunked",
        "transfer-encoding: chunked,",
        "transfer-encoding : chunked",
        "transfer-encoding\t: chunked",
        " transfer-encoding: chunked",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding: chunked\u{b}",
        "transfer-encoding: \u{b}chunked",
        "transfer-encoding: chunked\0",
        "transfer-encoding\0: chunked",
        "x: y\rtransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
        "transfer-encoding: \r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ];
    let mut forms = Vec::new();
    for encoding in encodings {
        // For a reader of chunks the body ends at once; for a reader of the length it includes the hidden request.
        let ends_early = format!("0\r\n\r\n{HIDDEN}");
        // For a reader of the length the body ends after the size of the chunk.
        let size = format!("{:x}\r\n", HIDDEN.len());
        let in_a_chunk = format!("{size}{HIDDEN}\r\n0\r\n\r\n");
        for (what, body, length) in [("early", &ends_early, ends_early.len()), ("late", &in_a_chunk, size.len())] {
            let length = format!("content-length: {length}\r\n");
            for framing in [format!("{length}{encoding}\r\n"), format!("{encoding}\r\n{length}")] {
                forms.push(post(&format!("{what} {framing:?}"), &framing, body));
            }
        }
    }
    forms
}

/// Chunks whose size or end is not what it should be.
fn chunks() -> Vec<Form> {
    let (body, size) = (run(), format!("{:x}", run().len()));
    let ends = format!("\r\n0\r\n\r\n{HIDDEN}");
    let chunked = |name: String, bytes: String| post(&name, "transfer-encoding: chunked\r\n", &bytes);
    let mut forms: Vec<Form> = [
        format!("+{size}"),
        format!("-{size}"),
        format!("0x{size}"),
        format!("{size}_"),
        format!("{size},"),
        format!("{size}g"),
        format!("{size}\u{b}"),
        format!("{size}\0"),
        format!("{size} {size}"),
        String::new(),
        " ".to_owned(),
        "ffffffffffffffffff".to_owned(),
        "10000000000000000".to_owned(),
        "-1".to_owned(),
    ]
    .into_iter()
    .map(|spelled| chunked(format!("chunk {spelled:?}"), format!("{spelled}\r\n{body}{ends}")))
    .collect();

    for line_end in ["\r", "\r\r\n", "\n\r", "\0\r\n", "\r \n"] {
        forms.push(chunked(format!("size {line_end:?}"), format!("{size}{line_end}{body}{ends}")));
        forms.push(chunked(format!("data {line_end:?}"), format!("{size}\r\n{body}{line_end}0\r\n\r\n{HIDDEN}")));
    }
    for (what, rest) in [("no end of data", "0\r\n\r\n"), ("data too long", "xx\r\n0\r\n\r\n"), ("data too short", "")]
    {
        let data = if rest.is_empty() { &body[1..] } else { &body };
        forms.push(chunked(what.to_owned(), format!("{size}\r\n{data}{rest}{HIDDEN}")));
    }
    forms
}

/// Names, values and lines that are no headers.
fn headers() -> Vec<Form> {
    let (body, length) = (run(), run().len());
    let lines = [
        format!("content-length : {length}\r\n"),
        format!("content-length\t: {length}\r\n"),
        format!(" content-length: {length}\r\n"),
        format!("\tcontent-length: {length}\r\n"),
        format!("content-length:\r\n {length}\r\n"),
        format!("content length: {length}\r\n"),
        format!("content-length\u{b}: {length}\r\n"),
        format!("content-length\0: {length}\r\n"),
        format!("x: y\rcontent-length: {length}\r\n"),
        format!("content-length: {length}\r\r\n"),
        format!("content-length{length}\r\n"),
        format!(": {length}\r\n"),
        format!("(content-length): {length}\r\n"),
        format!("content-length: {length}\r\nx\r\n"),
        format!("content-length: {length}\r\n: y\r\n"),
        format!("content-length: {length}\r\nx: \0\r\n"),
        format!("content-length: {length}\r\nx y: z\r\n"),
        format!("content-length: {length}\r\nhost: localhost\r\n"),
        format!("content-length: {length}\r\nhost: other\r\n"),
        format!("content-length: {length}\r\n host: other\r\n"),
        format!("content-length: {length}\r\nx: y\r\n folded\r\n"),
    ];
    lines.iter().map(|line| post(&format!("line {line:?}"), line, &format!("{body}{HIDDEN}"))).collect()
}

/// First lines that are no request lines, or name another protocol.
fn request_lines() -> Vec<Form> {
    let host = "host: localhost\r\n\r\n";
    [
        "GET  /hidden-request HTTP/1.1",
        "GET /hidden-request  HTTP/1.1",
        "GET\t/hidden-request\tHTTP/1.1",
        "GET /hidden-request HTTP/1.1 x",
        "GET /hidden-request HTTP/2.0",
        "GET /hidden-request HTTP/3",
        "GET /hidden-request HTTP/1.10",
        "GET /hidden-request HTTP/0.9",
        "GET /hidden-request http/1.1",
        "GET /hidden-request HTTP1.1",
        "GET /hidden-request HTTP/ 1.1",
        "GET /hidden-request",
        "GET/hidden-request HTTP/1.1",
        " GET /hidden-request HTTP/1.1",
        "GE\0T /hidden-request HTTP/1.1",
        "G(T /hidden-request HTTP/1.1",
        "GET /hidden-\0request HTTP/1.1",
        "GET /hidden request HTTP/1.1",
        "GET hidden-request HTTP/1.1",
        "GET \\hidden-request HTTP/1.1",
        "GET http:///hidden-request HTTP/1.1",
        "GET http://other/hidden-request HTTP/1.1",
        "GET https://u:p@localhost/hidden-request HTTP/1.1",
        "GET //other/hidden-request@ HTTP/1.1\r\nhost: other",
        "CONNECT /hidden-request HTTP/1.1",
        "CONNECT localhost:1 HTTP/1.1",
        "GET * HTTP/1.1",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n",
        "PRI /hidden-request HTTP/2.0",
        "\0GET /hidden-request HTTP/1.1",
    ]
    .iter()
    .map(|line| Form { name: format!("{line:?}"), bytes: format!("{line}\r\n{host}").into_bytes() })
    .collect()
}

/// All forms: more than 200.
pub fn all() -> Vec<Form> {
    [lengths(), lengths_and_encodings(), chunks(), headers(), request_lines()].into_iter().flatten().collect()
}

impl Form {
    /// The form, marked by its number, and a request after it for `/canary-NUMBER` that ends the connection.
    pub fn with_canary(&self, number: usize) -> Vec<u8> {
        let canary = format!("GET /canary-{number} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let sent = [&self.bytes, canary.as_bytes()].concat();
        replaced(&sent, MARK.as_bytes(), mark(number).as_bytes())
    }

    /// The error in the answers to [`with_canary`](Self::with_canary): the request after the form was served twice, or
    /// the hidden one was served.
    pub fn is_misread(&self, number: usize, received: &str) -> bool {
        // What answers an unknown path quotes it. A hidden request has its own line in the answer.
        let canaries = received.matches(&format!("/canary-{number}'")).count();
        let hidden = received.matches("/hidden-request'").count();
        canaries > 1 || hidden > usize::from(!self.bytes.starts_with(b"POST"))
    }
}

/// The text by which an agent recognizes the run of a form.
pub fn mark(number: usize) -> String {
    format!("form-{number:04}")
}

fn replaced(bytes: &[u8], mark: &[u8], by: &[u8]) -> Vec<u8> {
    let Some(start) = bytes.windows(mark.len()).position(|window| window == mark) else { return bytes.to_vec() };
    [&bytes[..start], by, &bytes[start + mark.len()..]].concat()
}
