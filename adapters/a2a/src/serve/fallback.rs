//! Unknown paths and wrong methods, rejected in the dialect of the path (docs/protocols/a2a.md#endpoints).

use std::sync::Arc;

use interlingua_core::call::{Call, Reply};
use interlingua_core::exchange::{Exchange, Next};
use interlingua_core::{Fault, FaultKind, Out, Request};

use super::writer::Writer;
use crate::Route;
use crate::dialect::{Binding, Dialect, Generation, RequestedVersion};

/// The exchange for paths and methods without an endpoint.
pub(crate) struct Fallback {
    route: Arc<Route>,
    writer: Writer,
}

impl Fallback {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        let dialect = Dialect { binding: Binding::Rest, generation: Generation::V1 };
        Self { route: Arc::clone(route), writer: Writer::new(dialect) }
    }

    /// The dialect of a path. The mount prefix is chosen by the operator, so it is ignored.
    fn dialect(&self, request: &Request<'_>) -> Dialect {
        // Well-known paths are also served at the root of the host, without the mount prefix.
        let path = request.path.strip_prefix(&self.route.path).unwrap_or(request.path);

        let options = &self.route.options;
        if matches!(path, "" | "/") && options.bindings.contains(&Binding::JsonRpc) {
            return Dialect {
                binding: Binding::JsonRpc,
                generation: RequestedVersion::from_request(request).generation(),
            };
        }

        let old = path.starts_with("/v1/") || matches!(path, "/v1" | "/agent/authenticatedExtendedCard");
        let old = old && options.versions.contains(&Generation::V03);
        Dialect { binding: Binding::Rest, generation: if old { Generation::V03 } else { Generation::V1 } }
    }
}

fn not_found() -> Fault {
    Fault::new(FaultKind::NoSuchPath, "nothing answers on this path")
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.writer.read_accept(request);
        self.writer.dialect = self.dialect(request);
        Err(not_found())
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(not_found())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.writer.fail(fault, &self.route.options.versions, out);
    }
}
