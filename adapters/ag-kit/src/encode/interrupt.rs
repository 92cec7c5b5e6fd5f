//! A pending item, as the protocol asks the client about it.

use interlingua_core::Out;
use interlingua_core::answer::{NATIVE_DECISIONS, offer, payload};
use interlingua_core::pending::{Pending, PendingKind};

use crate::{Route, wire};

/// Writes a pending item as an interrupt (docs/human-in-the-loop.md#asking).
pub(crate) fn write_interrupt(route: &Route, agent: &str, item: &Pending, out: &mut Out) {
    // An agent that has left the configuration since then: its item is answered as plain agents are.
    let taken = route.agent(agent).map_or(NATIVE_DECISIONS, |card| card.decisions);
    let payload = payload::to_json(item, &offer(item, taken));
    let reason = item.reason.as_deref().unwrap_or(match item.kind {
        PendingKind::Approval | PendingKind::Tool => "tool_call",
        // For questions the name serves as the reason.
        PendingKind::Input | PendingKind::Auth => &item.name,
    });
    wire::Event::Interrupt { id: &item.id, reason, payload: &payload }.write(out);
}
