//! The row of frames a run becomes: the strict writer (Agent API, section 13).
//!
//! Invariant: whatever the run, its frames are numbered from 0 without gaps, one message is open at a time, and
//! exactly one terminal response comes, last. The same steps make the same frames: what a frame shows of the run is
//! final, or was announced and does not change.
//!
//! Not here: how a frame is spelled (`wire`), and who reads it.

use bytes::BufMut;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Event, Step};
use interlingua_core::exchange::Flow;
use interlingua_core::model::ContentType;
use interlingua_core::run::{Run, RunError};
use interlingua_core::sequencer::MessageSequencer;
use interlingua_core::{Fault, Out, RunId, sse};
use serde::Serialize;

use crate::Terminal;
use crate::wire::{self, BegunMessage, Numbers, Output, Response, Snapshot, SnapshotValue, ToldContent, ToldMessage};

/// Writes the frames of one run.
#[derive(Debug)]
pub(crate) struct Frames {
    order: MessageSequencer,
    writer: Writer,
}

/// Which frames are written out. All of them are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Every frame, as the runtime does: without `id:` lines.
    All,
    /// Those after this number, or all, with `id:` lines, so that an `EventSource` can come back.
    After(Option<u64>),
    /// None: only the numbers are wanted.
    None,
}

#[derive(Debug)]
struct Writer {
    terminal: Terminal,
    shown: Shown,
    next: u64,
    numbers: Vec<Numbers>,
    fragment: Fragment,
    /// What a last frame needs that cannot see the run any more.
    begun: Option<Begun>,
    ended: bool,
}

/// The text that grows at the moment, and the constant part of its frames.
#[derive(Debug, Default)]
struct Fragment {
    of: Option<(u32, u32)>,
    middle: Vec<u8>,
}

#[derive(Debug)]
struct Begun {
    id: RunId,
    created_at: u64,
    session_id: String,
}

impl Frames {
    pub(crate) fn new(terminal: Terminal, shown: Shown) -> Self {
        let writer = Writer {
            terminal,
            shown,
            next: 0,
            numbers: Vec::new(),
            fragment: Fragment::default(),
            begun: None,
            ended: false,
        };
        Self { order: MessageSequencer::new(), writer }
    }

    /// Which frames are written from now on.
    pub(crate) fn show(&mut self, shown: Shown) {
        self.writer.shown = shown;
    }

    /// Writes what a step adds.
    #[inline]
    pub(crate) fn step(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.order.push(step, |step| self.writer.tell(step, out));
        if self.writer.ended { Flow::Close } else { Flow::More }
    }

    /// Tells the end of the last turn of a run that waits for its next one: a run begun over another protocol. Without an
    /// `id:` line, since its number belongs to the first frame of that turn, if it comes.
    pub(crate) fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        let Some((end, _)) = run.run().outcome() else { return Flow::More };
        if let Shown::After(after) = self.writer.shown {
            let is_new = after.is_none_or(|after| self.writer.next > after);
            self.writer.shown = if is_new { Shown::All } else { Shown::None };
        }
        self.writer.finish(run.run(), end, out);
        Flow::Close
    }

    /// Ends the row before the run has ended, with what the row knows. Nothing if it has ended, or never began.
    pub(crate) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.writer.interrupt(fault, out);
    }
}

/// The response object of a run as it stands: for an ended run, exactly its last frame.
pub(crate) fn write_response(terminal: Terminal, view: RunView<'_>, out: &mut Out) {
    with_response(terminal, view, |response| out.json(response));
}

/// The response object of a run as it stands, to be written into another object.
pub(crate) fn with_response<T>(terminal: Terminal, view: RunView<'_>, write: impl FnOnce(&Response<'_>) -> T) -> T {
    let mut frames = Frames::new(terminal, Shown::None);
    let mut unused = Out::new();
    for step in view.record.steps(0) {
        frames.step(step, &mut unused);
    }
    let (run, writer) = (view.run(), frames.writer);
    let last = writer.next.checked_sub(1);
    let output = Output { run, numbers: &writer.numbers };
    let mut error = RunError { code: String::new(), message: String::new() };
    let response = match stop(view) {
        Some(end) => terminal_response(terminal, run, end, last, output, &mut error),
        None => Response {
            status: if view.info.state == RunState::Queued { "queued" } else { "in_progress" },
            sequence_number: last,
            output: Some(output),
            ..begun_response(run)
        },
    };
    write(&response)
}

/// The response object of a run without its messages: an entry of a list.
pub(crate) fn listed_response<'a>(terminal: Terminal, view: RunView<'a>, error: &'a mut RunError) -> Response<'a> {
    let run = view.run();
    let output = Output { run, numbers: &[] };
    let response = match stop(view) {
        Some(end) => terminal_response(terminal, run, end, None, output, error),
        None => Response {
            status: if view.info.state == RunState::Queued { "queued" } else { "in_progress" },
            ..begun_response(run)
        },
    };
    Response { output: None, ..response }
}

/// How a run ended. One that waits, as runs of other protocols do, is shown as its last turn left it.
fn stop(view: RunView<'_>) -> Option<End> {
    let works = matches!(view.info.state, RunState::Queued | RunState::Running);
    view.run().outcome().filter(|_| !works || view.run().end.is_some()).map(|(end, _)| end)
}

const fn seconds(millis: u64) -> u64 {
    millis / 1000
}

fn begun_response(run: &Run) -> Response<'_> {
    Response {
        sequence_number: None,
        status: "created",
        error: None,
        id: run.id,
        created_at: seconds(run.created_at),
        completed_at: None,
        output: None,
        usage: None,
        session_id: &run.session_id,
        extra: None,
    }
}

/// `made` is where an error is put together if the run has none and needs one.
fn terminal_response<'a>(
    terminal: Terminal,
    run: &'a Run,
    end: End,
    number: Option<u64>,
    output: Output<'a>,
    made: &'a mut RunError,
) -> Response<'a> {
    let told_as_failed = terminal == Terminal::Failed && !matches!(end, End::Completed | End::Failed);
    let error = match (end, run.error()) {
        (End::Completed, _) => None,
        (_, Some(error)) if !told_as_failed => Some(error),
        (End::Failed, None) => Some(("AGENT_ERROR", "the agent failed")).map(|words| make(made, words)),
        (_, None) if !told_as_failed => None,
        (_, error) => {
            // The precise status has to stand somewhere (rule 13.5); the agent's own sentence stays.
            let (code, sentence) = match end {
                End::Incomplete => ("INCOMPLETE", "the answer was cut off"),
                End::Rejected => ("REJECTED", "the agent turned the request away"),
                _ => ("CANCELED", "the run was canceled"),
            };
            Some(make(made, (code, error.map_or(sentence, |error| &error.message))))
        }
    };
    Response {
        sequence_number: number,
        status: if told_as_failed { End::Failed.as_str() } else { end.as_str() },
        error,
        completed_at: run.outcome().filter(|_| end == End::Completed).map(|(_, at)| seconds(at)),
        output: Some(output),
        usage: run.usage(),
        extra: run.turn().map(|turn| &turn.extra),
        ..begun_response(run)
    }
}

fn make<'a>(made: &'a mut RunError, (code, message): (&str, &str)) -> &'a RunError {
    *made = RunError { code: code.to_owned(), message: message.to_owned() };
    made
}

impl Writer {
    fn tell(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { message, content, .. } if self.fragment.of == Some((message, content)) => {
                self.fragment(step.delta(), out);
            }
            // The arguments of a call and a refusal are told when they are whole: no client can be relied on to put
            // anything but text together (sections 5 and 6).
            Event::ContentDelta { .. } | Event::AnswerStarted { .. } | Event::TurnFinished { .. } => {}
            Event::RunStarted => self.begin(step.run, out),
            // Later turns of a run begun over another protocol go on in the same response.
            Event::TurnStarted { turn } => {
                if turn == 0 {
                    self.frame(out, |number| Response {
                        sequence_number: Some(number),
                        status: "in_progress",
                        ..begun_response(step.run)
                    });
                }
            }
            Event::MessageStarted { .. } => self.begin_message(step, out),
            Event::ContentStarted { message, content } => self.begin_content(step, (message, content), out),
            Event::ContentReplaced { .. } => self.replace(step, out),
            Event::ContentFinished { .. } => self.finish_content(step, out),
            Event::MessageFinished { .. } => self.finish_message(step, out),
            Event::RunFinished { end } => self.finish(step.run, end, out),
        }
    }

    fn begin(&mut self, run: &Run, out: &mut Out) {
        self.begun =
            Some(Begun { id: run.id, created_at: seconds(run.created_at), session_id: run.session_id.clone() });
        self.frame(out, |number| Response { sequence_number: Some(number), ..begun_response(run) });
    }

    fn begin_message(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((place, message)) = step.message() else { return };
        self.numbers.resize_with(self.numbers.len().max(place + 1), Numbers::default);
        let number = self.frame(out, |number| BegunMessage {
            number,
            id: &message.id,
            kind: &message.announced,
            role: &message.role,
            metadata: message.announced_metadata.as_ref(),
        });
        self.numbers[place].message = Some(number);
    }

    fn begin_content(&mut self, step: Step<'_>, place: (u32, u32), out: &mut Out) {
        let (Some((_, message)), Some((index, slot))) = (step.message(), step.slot()) else { return };
        self.fragment.of = None;
        if let Some(head) = &slot.call {
            let number = self.frame(out, |number| Snapshot {
                number,
                index,
                msg_id: &message.id,
                value: SnapshotValue::Call(head),
            });
            self.number_content(step, number);
        } else if slot.kind == ContentType::Text {
            self.fragment = Fragment { of: Some(place), middle: wire::fragment_middle(index, &message.id) };
        }
    }

    /// The hot path: nothing is looked up and nothing allocated, but where the buffer grows.
    #[inline]
    fn fragment(&mut self, text: &str, out: &mut Out) {
        let number = self.next;
        self.next += 1;
        match self.shown {
            Shown::All => {}
            Shown::After(after) if after.is_none_or(|after| number > after) => {
                out.write_raw(b"id: ");
                out.number(number);
                out.write_raw(b"\n");
            }
            Shown::After(_) | Shown::None => return,
        }
        let middle = &self.fragment.middle;
        // Once for the frame: 26 bytes before the number, 20 for it, quotes and the end.
        out.body.reserve(middle.len() + text.len() + 64);
        out.body.put_slice(b"data: {\"sequence_number\":");
        out.number(number);
        out.body.put_slice(middle);
        out.write_json(text);
        out.body.put_slice(b"}\n\n");
    }

    fn replace(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((index, slot))) = (step.message(), step.slot()) else { return };
        if slot.kind == ContentType::Text && slot.call.is_none() {
            let text = step.delta();
            self.frame(out, |number| Snapshot { number, index, msg_id: &message.id, value: SnapshotValue::Text(text) });
        }
    }

    fn finish_content(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((index, slot))) = (step.message(), step.slot()) else { return };
        self.fragment.of = None;
        let number = self.frame(out, |number| ToldContent { number: Some(number), index, msg_id: &message.id, slot });
        self.number_content(step, number);
    }

    fn number_content(&mut self, step: Step<'_>, number: u64) {
        let (Some((message, _)), Some((content, _))) = (step.message(), step.slot()) else { return };
        let Some(numbers) = self.numbers.get_mut(message) else { return };
        numbers.contents.resize(numbers.contents.len().max(content + 1), number);
        numbers.contents[content] = number;
    }

    fn finish_message(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((place, message)) = step.message() else { return };
        let Some(mut numbers) = self.numbers.get_mut(place).map(std::mem::take) else { return };
        let number = self.frame(out, |number| ToldMessage { number: Some(number), message, numbers: Some(&numbers) });
        numbers.message = Some(number);
        self.numbers[place] = numbers;
    }

    fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        if matches!(self.shown, Shown::After(Some(after)) if after > self.next) {
            // Whoever has counted further than the run came was told of another end, if any: here is the one it has.
            self.shown = Shown::After(None);
        }
        let numbers = std::mem::take(&mut self.numbers);
        let (terminal, mut error) = (self.terminal, RunError { code: String::new(), message: String::new() });
        self.frame(out, |number| {
            let output = Output { run, numbers: &numbers };
            terminal_response(terminal, run, end, Some(number), output, &mut error)
        });
        self.numbers = numbers;
        self.ended = true;
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if self.ended {
            return;
        }
        let Some(begun) = self.begun.take() else { return };
        let error = RunError { code: fault.code().to_owned(), message: fault.message.clone() };
        self.frame(out, |number| Response {
            sequence_number: Some(number),
            status: End::Failed.as_str(),
            error: Some(&error),
            id: begun.id,
            created_at: begun.created_at,
            completed_at: None,
            output: None,
            usage: None,
            session_id: &begun.session_id,
            extra: None,
        });
        self.ended = true;
    }

    /// Counts a frame, and writes it if it is to be shown.
    fn frame<T: Serialize>(&mut self, out: &mut Out, object: impl FnOnce(u64) -> T) -> u64 {
        let number = self.next;
        self.next += 1;
        let written = match self.shown {
            Shown::All => sse::encode::json(&mut out.body, None, None, &object(number)),
            Shown::After(after) if after.is_none_or(|after| number > after) => {
                sse::encode::json(&mut out.body, None, Some(&number.to_string()), &object(number))
            }
            Shown::After(_) | Shown::None => Ok(()),
        };
        debug_assert!(written.is_ok(), "wire types serialise");
        number
    }
}
