//! Finds the end of a JSON object in a text that arrives in pieces.
//!
//! A server puts two parallel calls into one, `{"city":"Paris"}{"city":"Rome"}`: what stands behind the first object
//! are the arguments of another call.

/// Follows one text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectEnd {
    depth: u32,
    in_text: bool,
    escaped: bool,
    begun: bool,
    ended: bool,
    /// The text is something else than an object.
    is_other: bool,
}

impl ObjectEnd {
    /// Reads on, and splits the piece behind the object's end. Text that is no object never ends.
    pub(super) fn split<'t>(&mut self, piece: &'t str) -> (&'t str, &'t str) {
        if self.ended {
            return ("", piece);
        }
        if self.is_other {
            return (piece, "");
        }
        for (place, byte) in piece.bytes().enumerate() {
            if self.read(byte) {
                self.ended = true;
                // A brace is one byte: this is between two characters.
                return piece.split_at(place + 1);
            }
        }
        (piece, "")
    }

    /// True at the last byte of the object.
    fn read(&mut self, byte: u8) -> bool {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'{' if !self.is_other => {
                self.begun = true;
                self.depth = self.depth.saturating_add(1);
            }
            b'}' if self.begun => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            b'"' if self.begun => self.in_text = true,
            byte => self.is_other |= !self.begun && !byte.is_ascii_whitespace(),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_ends_where_its_first_brace_is_closed() {
        for (pieces, rest) in [
            (&[r#"{"a":1}"#][..], ""),
            (&[r#"{"a":"#, "1}", r#"{"b"#, ":2}"], r#"{"b:2}"#),
            (&[r#"{"a":"}\"}"}{"#, "}"], "{}"),
            (&[r#"{"a":{"b":{}}}x"#], "x"),
            (&["true}", "}"], ""),
            (&["[{", "}]{}"], ""),
            (&["", "[1]"], ""),
            (&["{\"é\":\"🦊\"}", "🦊"], "🦊"),
        ] {
            let mut end = ObjectEnd::default();
            let found: String = pieces.iter().map(|piece| end.split(piece).1).collect();
            assert_eq!(found, rest, "{pieces:?}");
        }
    }
}
