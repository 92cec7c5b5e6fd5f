//! The event that asks the client for a decision (section 6).

use interlingua_core::Out;
use interlingua_core::answer::{langgraph, offer, supported_decisions};
use interlingua_core::pending::{Pending, PendingKind};

use crate::{Route, wire};

/// Writes a pending item as an interrupt (human-in-the-loop page, section 5).
pub(crate) fn write_interrupt(route: &Route, agent: &str, item: &Pending, out: &mut Out) {
    let approval_extension = route.agent(agent).is_some_and(|card| card.approval_extension);
    let payload = langgraph::payload(item, &offer(item, supported_decisions(item, approval_extension)));
    let reason = item.reason.as_deref().unwrap_or(match item.kind {
        PendingKind::Approval | PendingKind::Tool => "tool_call",
        // For questions the name serves as the reason.
        PendingKind::Input | PendingKind::Auth => &item.name,
    });
    wire::Event::Interrupt { id: &item.id, reason, payload: &payload }.write(out);
}
