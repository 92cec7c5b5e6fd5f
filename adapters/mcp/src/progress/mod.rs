//! The steps of a run as progress notifications (docs/protocols/mcp.md#progress).
//!
//! The value of `progress` is the position in the run's events that a notification reports up to. The runs that answer a
//! run's questions over other protocols count on from it. Texts are gathered for a while, everything else is sent at
//! once, at most [`rate::MAX_PER_SECOND`] notifications in a second; later news are combined into one notification.
//! Without a clock: each step has its time, and the exchange passes the time of everything else.

mod label;
mod news;
mod rate;

pub(crate) use label::status_message;

use interlingua_core::event::Millis;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::Run;
use interlingua_core::{Event, RunId, Step};
use serde_json::{Value, json};

use self::news::{News, Tails};
use self::rate::RateLimit;
use crate::options::{Options, Reasoning};

/// Maximum length of the new text of one notification, in bytes: clients refuse larger events.
const MAX_DELTA: usize = 200_000;

/// The count of notifications without news from which a resumed stream counts, so that its values are larger than those
/// that its client has seen.
const RESUMED: u64 = 500;

/// The progress notifications of one call.
#[derive(Debug)]
pub(crate) struct Progress {
    token: Value,
    agent: String,
    interval: Millis,
    keepalive: Millis,
    shows_reasoning: bool,
    /// Steps up to this position were sent on an earlier stream of the call.
    sent_before: u64,
    /// The run whose steps arrive, and the position of its first event.
    run: Option<RunId>,
    base: u64,
    /// The position up to which steps have arrived.
    position: u64,
    /// The position of the last notification.
    reported: u64,
    /// The number of notifications since then that reported nothing new.
    quiet: u64,
    news: News,
    tails: Tails,
    rate: RateLimit,
    now: Millis,
    /// When the call's run was accepted. `None`: nothing can be reported yet.
    started_at: Option<Millis>,
    /// When a notification was sent last, or the stream began.
    sent_at: Millis,
    is_waiting: bool,
    has_ended: bool,
}

impl Progress {
    /// The notifications of a call with this progress token.
    pub(crate) fn new(token: Value, options: &Options, agent: impl Into<String>) -> Self {
        let millis = |time: std::time::Duration| Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX);
        Self {
            token,
            agent: agent.into(),
            interval: millis(options.progress_interval.0),
            keepalive: millis(options.progress_keepalive.0).max(1),
            shows_reasoning: options.reasoning == Reasoning::Progress,
            sent_before: 0,
            run: None,
            base: 0,
            position: 0,
            reported: 0,
            quiet: 0,
            news: News::default(),
            tails: Tails::default(),
            rate: RateLimit::default(),
            now: 0,
            started_at: None,
            sent_at: 0,
            is_waiting: false,
            has_ended: false,
        }
    }

    /// The notifications of a stream that was cut at this position. Earlier steps have to arrive again, and are not
    /// reported again.
    pub(crate) fn resumed(self, position: u64) -> Self {
        Self { sent_before: position, reported: position, quiet: RESUMED, ..self }
    }

    /// The position of the last notification.
    pub(crate) const fn reported(&self) -> u64 {
        self.reported
    }

    /// Reports that the run was accepted. A resumed stream does not repeat that.
    pub(crate) fn accepted(&mut self, run: &Run, now: Millis, out: &mut Vec<Value>) {
        self.begin(run, now);
        if self.sent_before == 0 {
            let meta = json!({ "interlingua/run": run.id.to_string(), "interlingua/session": run.session_id });
            self.send_quiet(format!("{} is working", self.agent), Some(meta), out);
        }
    }

    fn begin(&mut self, run: &Run, now: Millis) {
        self.now = self.now.max(now);
        if self.started_at.is_none() {
            self.started_at = Some(run.created_at);
            self.sent_at = self.now;
        }
    }

    /// Reports a step. `now`: the current time if it is known, else the step's time counts.
    pub(crate) fn step(&mut self, step: &Step<'_>, now: Option<Millis>, out: &mut Vec<Value>) {
        self.begin(step.run, now.unwrap_or(step.at));
        if self.run != Some(step.id()) {
            self.flush(out);
            self.run = Some(step.id());
            self.base = self.position;
            self.tails = Tails::default();
        }
        self.position = self.base + step.sequence + 1;

        let is_urgent = self.read(step);
        if self.position <= self.sent_before {
            self.news = News::default();
            return;
        }
        self.news.has_arrived(self.now);
        let is_end = matches!(step.event, Event::TurnFinished { .. } | Event::RunFinished { .. });
        if is_end || self.news.delta_len() > MAX_DELTA {
            self.flush(out);
        } else if !self.news.is_empty() && (is_urgent || self.is_due()) {
            self.send_news(out);
        }
    }

    /// The time of [`Progress::on_time`]. `None`: never.
    pub(crate) fn wake_at(&self) -> Option<Millis> {
        if self.started_at.is_none() || self.has_ended {
            return None;
        }
        let silent = self.sent_at.saturating_add(self.keepalive);
        let Some(due) = self.news_due() else { return Some(silent) };
        Some(due.min(silent).max(self.now.saturating_add(1)))
    }

    /// Reports what has waited for its time, or that the call still works.
    pub(crate) fn on_time(&mut self, now: Millis, out: &mut Vec<Value>) {
        self.now = self.now.max(now);
        if self.has_ended || self.started_at.is_none() {
            return;
        }
        if self.is_due() {
            self.send_news(out);
        } else if self.now >= self.sent_at.saturating_add(self.keepalive) {
            if self.news.is_empty() {
                let message = self.keepalive_message();
                self.send_quiet(message, None, out);
            } else {
                self.flush(out);
            }
        }
    }

    /// Reports everything that has waited, whatever the rate. Needed before other messages of the stream that concern
    /// the same events, such as a question or the response.
    pub(crate) fn flush(&mut self, out: &mut Vec<Value>) {
        if !self.news.is_empty() {
            self.emit_news(out);
        }
    }

    /// Adds the news of a step. True if they are sent at once.
    fn read(&mut self, step: &Step<'_>) -> bool {
        match step.event {
            Event::TurnStarted { .. } => self.is_waiting = false,
            // An open item keeps the turn's run waiting.
            Event::TurnFinished { .. } => self.is_waiting = step.run.end.is_none(),
            Event::RunFinished { .. } => self.has_ended = step.run.answered_by().is_none(),
            _ => {}
        }
        let Some((index, message)) = step.message() else { return false };
        match &message.announced {
            // The final type may not be known yet, so only the announced one counts.
            MessageType::Message if !matches!(message.role, Role::User | Role::System) => self.read_text(step, index),
            MessageType::Reasoning if self.shows_reasoning => match step.event {
                Event::ContentDelta { .. } => self.news.think(step.delta()),
                Event::MessageFinished { .. } => true,
                _ => false,
            },
            MessageType::Error if matches!(step.event, Event::MessageFinished { .. }) => {
                label::error(message).is_some_and(|text| self.news.label(text))
            }
            kind if kind.is_call() && *kind != MessageType::FunctionCall => self.read_call(step),
            kind if kind.is_output() && *kind != MessageType::FunctionCallOutput => self.read_output(step),
            _ => false,
        }
    }

    fn read_text(&mut self, step: &Step<'_>, index: usize) -> bool {
        let is_text = step.slot().is_some_and(|(_, slot)| {
            matches!(slot.kind, ContentType::Text | ContentType::Refusal) && slot.call.is_none()
        });
        match step.event {
            Event::ContentDelta { .. } if is_text => {
                let is_first = self.tails.append(index, step.delta());
                self.news.say(step.delta(), self.tails.get(index));
                is_first
            }
            Event::ContentReplaced { .. } if is_text => {
                self.tails.replace(index, step.delta());
                self.news.replace(step.delta(), self.tails.get(index));
                true
            }
            Event::MessageFinished { .. } => {
                self.tails.remove(index);
                true
            }
            _ => false,
        }
    }

    fn read_call(&mut self, step: &Step<'_>) -> bool {
        let head = step.slot().and_then(|(_, slot)| slot.call.as_ref());
        match (step.event, head) {
            (Event::ContentStarted { .. }, Some(head)) => self.news.label(label::call(&head.name)),
            _ => false,
        }
    }

    fn read_output(&mut self, step: &Step<'_>) -> bool {
        match (step.event, step.slot()) {
            (Event::ContentFinished { .. }, Some((_, slot))) => self.news.label(label::output(step.run, slot)),
            _ => false,
        }
    }

    fn is_due(&self) -> bool {
        self.news_due().is_some_and(|due| due <= self.now)
    }

    /// When the news are sent at the latest, and at the earliest as far as the rate allows.
    fn news_due(&self) -> Option<Millis> {
        let arrived = self.news.arrived_at()?;
        let due = if self.news.is_urgent() { arrived } else { arrived.saturating_add(self.interval) };
        Some(due.max(self.rate.free_at()))
    }

    fn send_news(&mut self, out: &mut Vec<Value>) {
        if self.rate.free_at() > self.now {
            self.news.make_urgent();
            return;
        }
        self.emit_news(out);
    }

    fn emit_news(&mut self, out: &mut Vec<Value>) {
        let news = std::mem::take(&mut self.news);
        let (message, metas) = news.into_parts(MAX_DELTA);
        let last = metas.len().saturating_sub(1);
        for (index, meta) in metas.into_iter().enumerate() {
            if index == last {
                self.reported = self.position;
                self.quiet = 0;
                let value = json!(self.position);
                self.send(value, &message, meta, out);
            } else {
                self.send_quiet(message.clone(), meta, out);
            }
        }
    }

    fn keepalive_message(&self) -> String {
        if self.is_waiting {
            return "Waiting for an answer".to_owned();
        }
        let seconds = self.started_at.map_or(0, |started| self.now.saturating_sub(started) / 1000);
        format!("{} is still working ({seconds} s)", self.agent)
    }

    /// Sends a notification that reports no events. Its value is a little larger than the last one.
    fn send_quiet(&mut self, message: String, meta: Option<Value>, out: &mut Vec<Value>) {
        self.quiet += 1;
        let value = quiet_value(self.reported, self.quiet);
        self.send(value, &message, meta, out);
    }

    fn send(&mut self, value: Value, message: &str, meta: Option<Value>, out: &mut Vec<Value>) {
        let mut params = json!({ "progressToken": self.token, "progress": value, "message": message });
        if let Some(meta) = meta {
            params["_meta"] = meta;
        }
        out.push(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
        self.sent_at = self.now;
        self.rate.note(self.now);
    }
}

/// The value of the `count`th notification after this position: 0.001 more each time, and less than the next position
/// however many there are.
#[expect(clippy::cast_precision_loss, reason = "positions are far below 2^53")]
fn quiet_value(position: u64, count: u64) -> Value {
    const COARSE: u64 = 900;
    let value = if count <= COARSE {
        (position * 1000 + count) as f64 / 1000.0
    } else {
        let fine = (count - COARSE).min(999_999);
        (position * 10_000_000 + COARSE * 10_000 + fine) as f64 / 10_000_000.0
    };
    json!(value)
}

#[cfg(test)]
mod tests;
