//! The stream of a call: the steps of its run as progress, and the times at which it acts by itself.

use interlingua_core::event::Millis;
use interlingua_core::{Call, Event, Fault, FaultKind, Flow, Out, RunId, RunView, Step, Target};
use serde_json::{Value, json};

use super::super::challenge;
use super::super::shared::SharedState;
use super::super::writer::Writer;
use super::{MAX_RUNS, QUESTION_POLL, Skip, Stage, ToolCall};
use crate::progress::Progress;
use crate::tasks::{KeptRun, Phase};

impl ToolCall {
    pub(in super::super) fn begin(&mut self, view: RunView<'_>, shared: &mut SharedState, out: &mut Out) {
        if self.streamed != Some(view.run().id) {
            self.streamed = Some(view.run().id);
            self.base = self.position;
        }
        self.stage = Stage::Streaming;
        self.note_run(view);
        let existing = view.record.len();
        self.skipped = match self.skip {
            Skip::None => 0,
            Skip::Existing => existing,
            Skip::Turn(turn) => {
                let is_later =
                    |step: &Step<'_>| matches!(step.event, Event::TurnStarted { turn: later } if later as usize > turn);
                view.record.steps(0).find(is_later).map_or(existing, |step| step.sequence)
            }
        };
        self.skip = Skip::None;

        let first = self.first_run().unwrap_or(view.run().id);
        if shared.session.is_some() && shared.writer.numbered_by.is_none() {
            shared.writer.numbered_by = Some(first);
            if self.resumed_from.is_none() {
                shared.writer.opening(0, out);
            }
        }
        if self.progress.is_none()
            && let Some(token) = &self.token
        {
            let agent = view.run().agent.clone();
            let mut progress = Progress::new(token.clone(), &shared.route.options, agent);
            let mut messages = Vec::new();
            match self.resumed_from {
                Some(position) => progress = progress.resumed(position),
                None => {
                    let first = self.kept.first().map_or(view, KeptRun::view);
                    progress.accepted(first.run(), shared.now, &mut messages);
                    if self.skipped > 0 {
                        progress = progress.resumed(self.skipped);
                    }
                }
            }
            self.progress = Some(progress);
            write_all(&shared.writer, &messages, self.position, out);
        }
    }

    /// The first run of the call. `None`: the engine has not started it yet.
    pub(super) fn first_run(&self) -> Option<RunId> {
        self.kept.first().map(|kept| kept.view().run().id).or(self.run)
    }

    pub(in super::super) fn encode(&mut self, step: Step<'_>, shared: &mut SharedState, out: &mut Out) -> Flow {
        self.position = self.base + step.sequence + 1;
        if let Some(progress) = &mut self.progress {
            let mut messages = Vec::new();
            progress.step(&step, None, &mut messages);
            let position = progress.reported();
            write_all(&shared.writer, &messages, position, out);
        }

        match step.event {
            Event::TurnStarted { turn } => {
                let answered_by = step.run.turns.get(turn as usize).and_then(|turn| turn.answered_by);
                if let Some(next) = answered_by {
                    self.withdraw_question(shared, out);
                    if self.kept.len() < MAX_RUNS && !self.is_withdrawn(step.run, turn) {
                        self.stage = Stage::Chain(next);
                        self.next = Some(Call::Fetch(Target::Run(step.id())));
                        return Flow::Next;
                    }
                }
                Flow::More
            }
            // Answers that are collected, or decide nothing, leave a turn that the agent does not start.
            Event::AnswerStarted { .. } if step.sequence >= self.skipped => {
                self.asked = None;
                self.look_at = None;
                Flow::More
            }
            Event::RunFinished { .. } => {
                self.error = step.run.turns.last().and_then(|turn| turn.error.clone());
                self.stage = Stage::Settle;
                self.next = Some(Call::Fetch(Target::Run(step.id())));
                Flow::Next
            }
            _ => Flow::More,
        }
    }

    fn is_withdrawn(&self, run: &interlingua_core::Run, turn: u32) -> bool {
        run.turns.get(turn as usize).is_some_and(|turn| turn.withdrawn)
    }

    pub(in super::super) fn pause(&mut self, view: RunView<'_>, shared: &mut SharedState, out: &mut Out) -> Flow {
        self.note_run(view);
        match Phase::of(view) {
            Phase::Working => Flow::More,
            Phase::Ended(_) => {
                self.flush(shared, out);
                self.write_ended(view, shared, out);
                Flow::Close
            }
            Phase::Asks if shared.asks_on_stream() => self.ask_on_stream(view, shared, out),
            // The run is no longer that of an open call.
            Phase::Asks if shared.session.is_some() => self.close(view, None, shared, out),
            // The run is no longer that of an open call.
            Phase::Asks if shared.session.is_some() => self.close(view, None, shared, out),
            Phase::Asks => {
                self.flush(shared, out);
                match self.ask_by_result(view, None, shared, out) {
                    Ok(()) => {}
                    Err(fault) => self.interrupt(&fault, shared, out),
                }
                Flow::Close
            }
        }
    }

    /// Writes what progress has gathered.
    pub(super) fn flush(&mut self, shared: &SharedState, out: &mut Out) {
        if let Some(progress) = &mut self.progress {
            let mut messages = Vec::new();
            progress.flush(&mut messages);
            let position = progress.reported();
            write_all(&shared.writer, &messages, position, out);
        }
    }

    pub(in super::super) fn wake_at(&self) -> Option<Millis> {
        let progress = self.progress.as_ref().and_then(Progress::wake_at);
        // A person may take all the time.
        let may_expire = self.asked.is_none() && matches!(self.stage, Stage::Streaming);
        let deadline = self.deadline.filter(|_| may_expire).map(|deadline| deadline.at);
        [progress, deadline, self.look_at, self.closes_at].into_iter().flatten().min()
    }

    pub(in super::super) fn on_time(&mut self, now: Millis, shared: &mut SharedState, out: &mut Out) -> Flow {
        if let Some(progress) = &mut self.progress {
            let mut messages = Vec::new();
            progress.on_time(now, &mut messages);
            let position = progress.reported();
            write_all(&shared.writer, &messages, position, out);
        }
        // The stream looks at its run before this is called.
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + QUESTION_POLL);
        }
        if self.closes_at.is_some_and(|at| at <= now) {
            self.closes_at = None;
            self.flush(shared, out);
            Writer::retry(out);
            return Flow::Close;
        }
        if let (Some(deadline), Some(run), Stage::Streaming) = (self.deadline, self.run, &self.stage)
            && deadline.at <= now
            && self.asked.is_none()
        {
            self.deadline = None;
            self.flush(shared, out);
            self.stage = Stage::Expired(deadline);
            self.next = Some(self.closing_call(run, shared));
            return Flow::Next;
        }
        Flow::More
    }

    /// Ends the stream early.
    pub(in super::super) fn interrupt(&mut self, fault: &Fault, shared: &SharedState, out: &mut Out) {
        self.flush(shared, out);
        if fault.kind == FaultKind::ShuttingDown && shared.writer.numbered_by.is_some() && shared.writer.has_events() {
            return Writer::retry(out);
        }
        let failed = self.error.take().map(|error| {
            let kind = FaultKind::of_code(&error.code).unwrap_or(FaultKind::AgentFailed);
            let mut fault = Fault::new(kind, error.message);
            fault.code = Some(error.code);
            fault
        });
        let fault = failed.as_ref().unwrap_or(fault);
        match self.on_fault(fault, shared) {
            Some(Ok(result)) => shared.writer.result(result, self.position, out),
            Some(Err(error)) => shared.writer.error(&error, self.position, out),
            None => {
                let mut error = challenge::error(fault);
                if let (Some(data), Some(run)) = (&mut error.data, self.first_run()) {
                    data["run"] = json!(run.to_string());
                }
                shared.writer.error(&error, self.position, out);
            }
        }
    }
}

fn write_all(writer: &Writer, messages: &[Value], position: u64, out: &mut Out) {
    for message in messages {
        writer.message(message, position, out);
    }
}
