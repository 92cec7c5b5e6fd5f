//! Tool calls, assembled from pieces that servers label in many wrong ways.
//!
//! See `docs/protocols/chat-completions.md#tool-calls`. Not here: one call and its arguments ([`super::call`]).

use std::collections::HashMap;

use interlingua_adapter_kit::wire_names::OriginalNames;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::{ContentKind, End, Extra, Fault, Json, opaque};

use super::call::{Call, Output};
use super::chunk::CallPiece;

/// The calls of an answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The author's name of opaque values.
    origin: String,
    /// The client's names of tools that the request had to rename.
    names: OriginalNames,
    all: Vec<Call>,
    /// The latest call of each index.
    by_index: HashMap<i64, usize>,
    /// Counts the chunks that held calls.
    chunk: u64,
    /// Calls before this one are closed.
    closed: usize,
    /// Calls that were left out because no name came.
    nameless: u32,
}

impl Calls {
    /// `origin`: the author's name of opaque values.
    pub(super) fn new(origin: String, names: OriginalNames) -> Self {
        Self { origin, names, ..Self::default() }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// True if there is any call.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if the agent called something, but never named it.
    pub(super) const fn has_nameless(&self) -> bool {
        self.nameless > 0
    }

    /// The pieces of another chunk follow.
    pub(super) fn begin_chunk(&mut self) {
        self.chunk += 1;
    }

    /// Takes a piece. The messages of text and reasoning are closed before.
    pub(super) fn piece(&mut self, piece: &CallPiece<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
        let id = piece.id.as_deref().unwrap_or_default();
        let name = piece.name().unwrap_or_default();
        let place = match self.place(piece, id, name) {
            Some(place) => place,
            // A piece of nothing.
            None if name.is_empty() && id.is_empty() && piece.arguments().is_empty() => return Ok(()),
            None => self.open(piece.index, out)?,
        };
        self.add(place, piece, out)
    }

    /// Takes a whole call from a snapshot at the end of the answer. `place`: its place in the list.
    pub(super) fn snapshot(&mut self, place: usize, piece: &CallPiece<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
        let id = piece.id.as_deref().unwrap_or_default();
        let name = piece.name().unwrap_or_default();
        let by_id = self.all.iter().position(|call| !id.is_empty() && call.id == id);
        let same_name = |call: &&Call| name.is_empty() || call.name.is_empty() || call.name == name;
        let by_place = || self.all.get(place).filter(same_name).map(|_| place);
        match by_id.or_else(by_place) {
            Some(place) if self.all[place].is_closed => Ok(()),
            Some(place) => self.add(place, piece, out),
            None => {
                let place = self.open(None, out)?;
                self.add(place, piece, out)
            }
        }
    }

    fn add(&mut self, place: usize, piece: &CallPiece<'_>, out: &mut Output<'_>) -> Result<(), Fault> {
        let chunk = self.chunk;
        let call = &mut self.all[place];
        call.chunk = chunk;
        if let Some(id) = piece.id.as_deref().filter(|_| call.id.is_empty()) {
            id.clone_into(&mut call.id);
        }
        if let Some(name) = piece.name() {
            call.extend_name(name);
        }

        if let Some(extra) = piece.extra_content {
            let mut metadata = Extra::new();
            metadata.push("extra_content", Json::from_raw(extra));
            metadata.push(opaque::ORIGIN, Json::from_serialize(&self.origin));
            call.metadata = Some(metadata);
        }
        call.is_custom |= piece.is_custom();

        let arguments = piece.arguments();
        if call.name.is_empty() {
            out.held.add(arguments.len())?;
        }
        if !arguments.is_empty() && !call.take(arguments) {
            out.losses.lost(ContentKind::ClientCall, "arguments behind the end of a call's arguments are left out");
            return out.sink.emit(&AgentEvent::Ignored);
        }
        // A name alone may be the first half of one.
        if arguments.is_empty() { Ok(()) } else { call.emit_new(&self.names, &self.origin, out) }
    }

    /// The call that a piece belongs to. None: it opens one.
    fn place(&self, piece: &CallPiece<'_>, id: &str, name: &str) -> Option<usize> {
        let last = self.all.len().checked_sub(1);
        let by_id = || self.all.iter().rposition(|call| call.id == id);
        let place = match piece.index {
            Some(index) => {
                let known = self.by_index.get(&index).copied();
                // Under another index, but of a known call.
                known.or_else(|| if name.is_empty() && !id.is_empty() { by_id() } else { None })
            }
            // A piece with the late id or name of the last call.
            None if !id.is_empty() => by_id().or_else(|| {
                last.filter(|&last| {
                    let last = &self.all[last];
                    last.id.is_empty() && (name.is_empty() || last.name.is_empty())
                })
            }),
            None if !name.is_empty() => last.filter(|&last| self.all[last].name.is_empty()),
            None => last,
        };

        let arguments = piece.arguments();
        place.filter(|&place| !self.all[place].is_another(id, name, arguments, self.chunk))
    }

    fn open(&mut self, index: Option<i64>, out: &mut Output<'_>) -> Result<usize, Fault> {
        self.close_whole(out)?;
        out.held.add(size_of::<Call>())?;
        let place = self.all.len();
        self.all.push(Call::default());
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        Ok(place)
    }

    /// Something else begins: names are whole, and calls with whole arguments are closed. Pieces of the others may
    /// follow.
    #[inline]
    pub(super) fn close_whole(&mut self, out: &mut Output<'_>) -> Result<(), Fault> {
        for call in &mut self.all[self.closed..] {
            if call.name.is_empty() || call.is_closed {
                continue;
            }
            if call.is_whole() {
                call.close(End::Completed, &self.names, &self.origin, out)?;
            } else {
                call.announce(&self.names, &self.origin, out)?;
            }
        }

        while self.all.get(self.closed).is_some_and(|call| call.is_closed) {
            self.closed += 1;
        }
        Ok(())
    }

    /// The answer ended. `end`: how the turn did.
    pub(super) fn finish(&mut self, end: End, out: &mut Output<'_>) -> Result<(), Fault> {
        let closed = self.closed;
        for call in self.all[closed..].iter_mut().filter(|call| !call.is_closed) {
            if call.name.is_empty() {
                self.nameless += 1;
                out.losses.lost(ContentKind::ClientCall, "a call without a name is left out: no client can run it");
                continue;
            }
            let end = if call.is_whole() { End::Completed } else { end };
            call.close(end, &self.names, &self.origin, out)?;
        }

        self.all.retain(|call| call.is_closed);
        self.closed = self.all.len();
        self.by_index.clear();
        Ok(())
    }
}
