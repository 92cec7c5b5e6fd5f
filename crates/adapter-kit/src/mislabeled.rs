//! An event stream that came under the content type of a whole body.
//!
//! Not here: distinguishing such a body from JSON, which each connector does by its first bytes.

use interlingua_core::connector::{AgentTurn, EventSink};
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::model_error::garbage;
use interlingua_core::sse::Decoder;

/// Passes the frames of a body to a turn.
///
/// # Errors
/// Those of the turn. If the body holds no frame: the error that it reports in another form, else
/// [`FaultKind::UpstreamGarbage`].
pub fn read_stream(turn: &mut impl AgentTurn, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
    let unreadable =
        |error| Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be read").with_detail(error);
    let mut decoder = Decoder::new(body.len() + 1);
    let mut rest = body;
    let mut is_stream = false;
    while let Some(frame) = decoder.decode(&mut rest).map_err(unreadable)? {
        is_stream = true;
        turn.on_frame(frame, sink)?;
    }

    if let Some(frame) = decoder.finish().frame() {
        is_stream = true;
        turn.on_frame(frame, sink)?;
    }
    if is_stream { Ok(()) } else { Err(garbage(body)) }
}
