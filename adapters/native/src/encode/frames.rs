//! Encodes a run as frames: the strict writer (docs/protocols/agent-api.md#writer).
//!
//! Invariant: the frames of any run are numbered from 0 without gaps, one message is open at a time, and the last frame
//! is the only terminal response. The same steps result in the same frames: a frame uses only parts of the run that are
//! final, or that were announced and do not change.
//!
//! Not here: the serialization of a frame (`wire`).

use bytes::BufMut;
use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Event};
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::run::{Message, Run, RunError};
use interlingua_core::step::Step;
use interlingua_core::{Fault, Out, RunId, sse};
use serde::Serialize;

use crate::wire::{self, Numbers, Output, Response, Snapshot, SnapshotValue, StartedMessage, WireContent, WireMessage};
use crate::{ResponseForm, Terminal};

/// Writes the frames of one run.
#[derive(Debug)]
pub(crate) struct Frames {
    order: MessageSequencer,
    writer: Writer,
    losses: Losses,
}

/// The frames that are written. All frames are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFrames {
    /// Every frame without an `id:` line, as in the runtime.
    All,
    /// The frames after this number, or all of them if it is `None`. They have `id:` lines, so that an `EventSource`
    /// can reconnect.
    After(Option<u64>),
    /// No frame: only the numbers are needed.
    None,
}

#[derive(Debug)]
struct Writer {
    form: ResponseForm,
    selection: WriteFrames,
    /// The number of the next frame.
    next: u64,
    numbers: Vec<Numbers>,
    text: OpenText,
    /// `None` before the run has started, and after an interruption.
    started: Option<StartedRun>,
    ended: bool,
}

/// The text that currently gets deltas.
#[derive(Debug, Default)]
struct OpenText {
    /// The indexes of its message and of the content.
    position: Option<(u32, u32)>,
    /// The constant part of its frames: the bytes between the number and the delta.
    middle: Vec<u8>,
}

/// The fields of the last frame of an interrupted stream, which is written without access to the run.
#[derive(Debug)]
struct StartedRun {
    id: RunId,
    created_at: u64,
    session_id: String,
}

impl Frames {
    pub(crate) fn new(form: ResponseForm, selection: WriteFrames) -> Self {
        let writer = Writer {
            form,
            selection,
            next: 0,
            numbers: Vec::new(),
            text: OpenText::default(),
            started: None,
            ended: false,
        };
        Self { order: MessageSequencer::new(), writer, losses: Losses::new() }
    }

    /// Sets the form of the response, before its first frame.
    pub(crate) fn set_form(&mut self, form: ResponseForm) {
        self.writer.form = form;
    }

    /// Writes the response as one object.
    pub(crate) fn respond(&mut self, view: RunView<'_>, out: &mut Out) {
        for message in &view.run().messages {
            self.note(message);
        }
        write_response(self.writer.form, view, out);
    }

    /// The messages that were left out.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    fn note(&mut self, message: &Message) {
        if self.writer.form.hides(message) {
            let how = "the route's option protocol_events, or the query of the request, shows them";
            self.losses.lost(ContentKind::ProtocolEvent, how);
        }
    }

    /// Sets which frames are written from now on.
    pub(crate) fn select(&mut self, selection: WriteFrames) {
        self.writer.selection = selection;
    }

    /// True if the client has frames already.
    pub(crate) const fn resumes(&self) -> bool {
        matches!(self.writer.selection, WriteFrames::After(Some(_)))
    }

    /// Writes the frames of a step.
    #[inline]
    pub(crate) fn step(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        if let Some((_, message)) = step.message().filter(|(_, message)| self.writer.form.hides(message)) {
            if matches!(step.event, Event::MessageStarted { .. }) {
                self.note(message);
            }
            return Flow::More;
        }
        self.order.push(step, |step| self.writer.write(step, out));
        if self.writer.ended { Flow::Close } else { Flow::More }
    }

    /// Writes the end of the last turn if the run waits for its next one: a run started over another protocol. The
    /// frame has no `id:` line, because its number belongs to the first frame of the next turn, if there is one.
    pub(crate) fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        let Some((end, _)) = run.run().outcome() else { return Flow::More };
        if let WriteFrames::After(after) = self.writer.selection {
            let is_new = after.is_none_or(|after| self.writer.next > after);
            self.writer.selection = if is_new { WriteFrames::All } else { WriteFrames::None };
        }
        self.writer.finish(run.run(), end, out);
        Flow::Close
    }

    /// Ends the stream before the run has ended. Writes nothing if the run has ended or never started.
    pub(crate) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.writer.interrupt(fault, out);
    }
}

/// Writes the response object of a run in its current state: for an ended run, exactly its last frame.
pub(crate) fn write_response(form: ResponseForm, view: RunView<'_>, out: &mut Out) {
    with_response(form, view, |response| out.json(response));
}

/// Calls `write` with the response object of a run in its current state.
pub(crate) fn with_response<T>(form: ResponseForm, view: RunView<'_>, write: impl FnOnce(&Response<'_>) -> T) -> T {
    let mut frames = Frames::new(form, WriteFrames::None);
    let mut unused = Out::new();
    for step in view.record.steps(0) {
        frames.step(step, &mut unused);
    }

    let (run, writer) = (view.run(), frames.writer);
    let last = writer.next.checked_sub(1);
    let output = Output { run, numbers: &writer.numbers, form };
    let mut error = RunError { code: String::new(), message: String::new() };
    let response = match end(view) {
        Some(end) => terminal_response(form.terminal, run, end, last, output, &mut error),
        None => Response {
            status: if view.info.state == RunState::Queued { "queued" } else { "in_progress" },
            sequence_number: last,
            output: Some(output),
            ..started_response(run)
        },
    };

    write(&response)
}

/// The response object of a run without its messages, for a list of runs.
pub(crate) fn listed_response<'a>(form: ResponseForm, view: RunView<'a>, error: &'a mut RunError) -> Response<'a> {
    let run = view.run();
    let output = Output { run, numbers: &[], form };
    let response = match end(view) {
        Some(end) => terminal_response(form.terminal, run, end, None, output, error),
        None => Response {
            status: if view.info.state == RunState::Queued { "queued" } else { "in_progress" },
            ..started_response(run)
        },
    };
    Response { output: None, ..response }
}

/// The end of a run, or of its last turn if it waits for the client, as runs of other protocols can.
fn end(view: RunView<'_>) -> Option<End> {
    let is_active = matches!(view.info.state, RunState::Queued | RunState::Running);
    view.run().outcome().filter(|_| !is_active || view.run().end.is_some()).map(|(end, _)| end)
}

const fn seconds(millis: u64) -> u64 {
    millis / 1000
}

fn started_response(run: &Run) -> Response<'_> {
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

/// The terminal response. `buffer` stores an error that the response needs and the run does not have.
fn terminal_response<'a>(
    terminal: Terminal,
    run: &'a Run,
    end: End,
    number: Option<u64>,
    output: Output<'a>,
    buffer: &'a mut RunError,
) -> Response<'a> {
    let sent_as_failed = terminal == Terminal::Failed && !matches!(end, End::Completed | End::Failed);
    let error = match (end, run.error()) {
        (End::Completed, _) => None,
        (_, Some(error)) if !sent_as_failed => Some(error),
        (End::Failed, None) => Some(("AGENT_ERROR", "the agent failed")).map(|words| fill(buffer, words)),
        (_, None) if !sent_as_failed => None,
        (_, error) => {
            // The code carries the original status (docs/protocols/agent-api.md#writer-5). The agent's message, if
            // there is one, stays.
            let (code, default_message) = match end {
                End::Incomplete => ("INCOMPLETE", "the answer was cut off"),
                End::Rejected => ("REJECTED", "the agent turned the request away"),
                _ => ("CANCELED", "the run was canceled"),
            };
            Some(fill(buffer, (code, error.map_or(default_message, |error| &error.message))))
        }
    };

    Response {
        sequence_number: number,
        status: if sent_as_failed { End::Failed.as_str() } else { end.as_str() },
        error,
        completed_at: run.outcome().filter(|_| end == End::Completed).map(|(_, at)| seconds(at)),
        output: Some(output),
        usage: run.usage(),
        extra: run.turn().map(|turn| &turn.extra),
        ..started_response(run)
    }
}

fn fill<'a>(buffer: &'a mut RunError, (code, message): (&str, &str)) -> &'a RunError {
    *buffer = RunError { code: code.to_owned(), message: message.to_owned() };
    buffer
}

impl ResponseForm {
    /// True for a message that is left out.
    pub(crate) fn hides(self, message: &Message) -> bool {
        !self.protocol_events && message.announced == MessageType::ProtocolEvent
    }
}

impl Writer {
    fn write(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { message, content, .. } if self.text.position == Some((message, content)) => {
                self.delta(step.delta(), out);
            }
            // Arguments and refusals are sent when they are complete: clients merge deltas of texts reliably, but no
            // others (docs/protocols/agent-api.md#deltas).
            Event::ContentDelta { .. } | Event::AnswerStarted { .. } | Event::TurnFinished { .. } => {}
            Event::RunStarted => self.begin(step.run, out),
            // Later turns of a run that was started over another protocol continue the same response.
            Event::TurnStarted { turn } => {
                if turn == 0 {
                    self.frame(out, |number| Response {
                        sequence_number: Some(number),
                        status: "in_progress",
                        ..started_response(step.run)
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
        self.started =
            Some(StartedRun { id: run.id, created_at: seconds(run.created_at), session_id: run.session_id.clone() });
        self.frame(out, |number| Response { sequence_number: Some(number), ..started_response(run) });
    }

    fn begin_message(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        self.numbers.resize_with(self.numbers.len().max(index + 1), Numbers::default);

        let number = self.frame(out, |number| StartedMessage {
            number,
            id: &message.id,
            kind: &message.announced,
            role: &message.role,
            metadata: message.announced_metadata.as_ref(),
        });
        self.numbers[index].message = Some(number);
    }

    fn begin_content(&mut self, step: Step<'_>, position: (u32, u32), out: &mut Out) {
        let (Some((_, message)), Some((index, slot))) = (step.message(), step.slot()) else { return };
        self.text.position = None;

        if let Some(head) = &slot.call {
            let number = self.frame(out, |number| Snapshot {
                number,
                index,
                msg_id: &message.id,
                value: SnapshotValue::Call(head),
            });
            self.number_content(step, number);
        } else if slot.kind == ContentType::Text {
            self.text = OpenText { position: Some(position), middle: wire::fragment_middle(index, &message.id) };
        }
    }

    /// Writes a delta of the open text. The hot path: it allocates only when the buffer grows.
    #[inline]
    fn delta(&mut self, text: &str, out: &mut Out) {
        let number = self.next;
        self.next += 1;

        let id = match self.selection {
            WriteFrames::All => None,
            WriteFrames::After(after) if after.is_none_or(|after| number > after) => Some(number),
            WriteFrames::After(_) | WriteFrames::None => return,
        };

        let middle = &self.text.middle;
        // One reservation per frame: 26 bytes before the number, 20 for the number, the rest for quotes and the end.
        out.body.reserve(middle.len() + text.len() + 64);
        out.begin_frame(None, id);
        out.body.put_slice(b"{\"sequence_number\":");
        out.number(number);
        out.body.put_slice(middle);
        out.write_json(text);
        out.body.put_slice(b"}");
        out.end_frame();
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
        self.text.position = None;
        let number = self.frame(out, |number| WireContent { number: Some(number), index, msg_id: &message.id, slot });
        self.number_content(step, number);
    }

    fn number_content(&mut self, step: Step<'_>, number: u64) {
        let (Some((message, _)), Some((content, _))) = (step.message(), step.slot()) else { return };
        let Some(numbers) = self.numbers.get_mut(message) else { return };
        numbers.contents.resize(numbers.contents.len().max(content + 1), number);
        numbers.contents[content] = number;
    }

    fn finish_message(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((index, message)) = step.message() else { return };
        let Some(mut numbers) = self.numbers.get_mut(index).map(std::mem::take) else { return };
        let number = self.frame(out, |number| WireMessage { number: Some(number), message, numbers: Some(&numbers) });
        numbers.message = Some(number);
        self.numbers[index] = numbers;
    }

    fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        if matches!(self.selection, WriteFrames::After(Some(after)) if after > self.next) {
            // The client resumes after a number that the run never reached, so it has not received the end.
            self.selection = WriteFrames::After(None);
        }

        let numbers = std::mem::take(&mut self.numbers);
        let (form, mut error) = (self.form, RunError { code: String::new(), message: String::new() });
        self.frame(out, |number| {
            let output = Output { run, numbers: &numbers, form };
            terminal_response(form.terminal, run, end, Some(number), output, &mut error)
        });
        self.numbers = numbers;
        self.ended = true;
    }

    fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if self.ended {
            return;
        }
        let Some(started) = self.started.take() else { return };

        let error = RunError { code: fault.code().to_owned(), message: fault.message.clone() };
        self.frame(out, |number| Response {
            sequence_number: Some(number),
            status: End::Failed.as_str(),
            error: Some(&error),
            id: started.id,
            created_at: started.created_at,
            completed_at: None,
            output: None,
            usage: None,
            session_id: &started.session_id,
            extra: None,
        });
        self.ended = true;
    }

    /// Counts a frame, and writes it if it is selected. Returns its number.
    fn frame<T: Serialize>(&mut self, out: &mut Out, object: impl FnOnce(u64) -> T) -> u64 {
        let number = self.next;
        self.next += 1;

        let written = match self.selection {
            WriteFrames::All => sse::encode::json(&mut out.body, None, None, &object(number)),
            WriteFrames::After(after) if after.is_none_or(|after| number > after) => {
                sse::encode::json(&mut out.body, None, Some(&number.to_string()), &object(number))
            }
            WriteFrames::After(_) | WriteFrames::None => Ok(()),
        };
        debug_assert!(written.is_ok(), "wire types serialize");
        number
    }
}
