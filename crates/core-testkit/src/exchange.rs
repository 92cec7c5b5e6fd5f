//! Recorded exchanges with real servers: the `.http` files in `tests/transcripts`.
//!
//! A file holds the request as lines that begin with `>`, the head and the body of the answer as they came (without the
//! framing of chunks), and a last line that says how the connection ended: `< curl exit 0`, or `18` if the answer broke
//! off in the middle, or `28` if it was still open when the recording stopped.

use std::path::Path;

use super::Answer;

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct RecordedExchange {
    /// Such as `POST`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Empty: the request had no body.
    pub request: String,
    /// The HTTP status.
    pub status: u16,
    /// The media type, without parameters.
    pub media_type: String,
    /// The body.
    pub body: Vec<u8>,
    /// The answer broke off in the middle.
    pub is_cut: bool,
}

impl RecordedExchange {
    /// Parses a file.
    ///
    /// # Panics
    /// If it has another form.
    #[must_use]
    pub fn parse(file: &[u8]) -> Self {
        let find = |mark: &[u8], from: usize| {
            let place = file[from..].windows(mark.len()).position(|window| window == mark);
            place.map(|place| from + place)
        };
        let head = find(b"\nHTTP/1.1 ", 0).expect("the head of an answer") + 1;
        let head_end = find(b"\r\n\r\n", head).expect("the end of a head");
        let end = find(b"\n< curl exit ", head_end).expect("how the connection ended");
        let lines = String::from_utf8_lossy(&file[..head]);
        let mut lines = lines.lines().filter_map(|line| line.strip_prefix('>')).map(str::trim_start);
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).expect("the request's line");
        let request = lines.skip_while(|line| !line.is_empty()).skip(1).collect::<Vec<_>>().join("\n");

        let answer = String::from_utf8_lossy(&file[head..head_end]);
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-type").then(|| value.split(';').next().unwrap_or("").trim().to_owned())
        };
        let tail = String::from_utf8_lossy(&file[end + "\n< curl exit ".len()..]);
        let exit = tail.split(' ').next().unwrap_or_default();
        let body = &file[head_end + 4..end];
        // Messages of the recorder stand where the answer broke off.
        let note = body.windows(6).rposition(|window| window == b"\ncurl:").map_or(body.len(), |place| place + 1);
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            request,
            status,
            media_type: answer.lines().find_map(header).unwrap_or_default(),
            body: body[..if exit == "0" { body.len() } else { note }].to_vec(),
            is_cut: exit != "0",
        }
    }

    /// The answer as a connector gets it. A refusal is a body too: [`Self::status`] says so.
    #[must_use]
    pub fn answer(&self) -> Answer {
        match (self.media_type.as_str(), self.is_cut) {
            ("text/event-stream", false) => Answer::Stream(vec![self.body.clone()]),
            ("text/event-stream", true) => Answer::Cut(vec![self.body.clone()]),
            _ => Answer::Body(self.body.clone()),
        }
    }
}

/// All exchanges in a folder, by their names, in order.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn recorded_exchanges(folder: &Path) -> Vec<(String, RecordedExchange)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "http"));
    paths.sort();
    let read = |path: &Path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, RecordedExchange::parse(&std::fs::read(path).expect("a readable file")))
    };
    paths.iter().map(|path| read(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_answer_and_end_are_told_apart() {
        let file = "> POST /a\n> A2A-Version: 1.0\n>\n> {\"x\":1}\n\nHTTP/1.1 200 OK\r\n\
                    Content-Type: text/event-stream; charset=utf-8\r\n\r\ndata: a\r\n\r\n\n< curl exit 0 (framed)\n";
        let found = RecordedExchange::parse(file.as_bytes());
        assert_eq!((found.method.as_str(), found.path.as_str(), found.request.as_str()), ("POST", "/a", "{\"x\":1}"));
        assert_eq!((found.status, found.media_type.as_str(), found.is_cut), (200, "text/event-stream", false));
        assert_eq!(found.body, b"data: a\r\n\r\n");

        let cut = "> GET /b\n\nHTTP/1.1 200 OK\r\n\r\ndata: a\n\ncurl: (18) closed\n\n< curl exit 18 (cut)\n";
        let found = RecordedExchange::parse(cut.as_bytes());
        assert!(found.is_cut && found.request.is_empty());
        assert_eq!(found.body, b"data: a\n\n");
    }
}
