//! What no endpoint answers: unknown paths and wrong methods, refused in the dialect of the path (section 2).

use std::sync::Arc;

use interlingua_core::call::{Call, Reply};
use interlingua_core::event::Step;
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::{Fault, FaultKind, Out, Request};

use super::write::Writer;
use crate::Route;
use crate::dialect::{Asked, Binding, Dialect, Generation};

/// Answers paths and methods that no endpoint answers.
pub(crate) struct Fallback {
    route: Arc<Route>,
    write: Writer,
}

impl Fallback {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        let dialect = Dialect { binding: Binding::Rest, generation: Generation::V1 };
        Self { route: Arc::clone(route), write: Writer::new(dialect) }
    }

    /// The dialect of a path. What stands in front of the mount is the operator's, and says nothing.
    fn dialect(&self, request: &Request<'_>) -> Dialect {
        // Well-known paths are answered at the root of the host too.
        let path = request.path.strip_prefix(&self.route.path).unwrap_or(request.path);
        let options = &self.route.options;
        if matches!(path, "" | "/") && options.bindings.contains(&Binding::JsonRpc) {
            return Dialect { binding: Binding::JsonRpc, generation: Asked::of(request).generation() };
        }
        let old = path.starts_with("/v1/") || matches!(path, "/v1" | "/agent/authenticatedExtendedCard");
        let old = old && options.versions.contains(&Generation::V03);
        Dialect { binding: Binding::Rest, generation: if old { Generation::V03 } else { Generation::V1 } }
    }
}

fn nothing() -> Fault {
    Fault::new(FaultKind::NoSuchPath, "nothing answers on this path")
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.write.hears(request);
        self.write.dialect = self.dialect(request);
        Err(nothing())
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(nothing())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.write.fail(fault, &self.route.options.versions, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
