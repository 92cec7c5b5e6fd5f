//! The exchange for requests below a mount point that match no endpoint: unknown paths and wrong methods.
//!
//! Not here: how a protocol writes an error, which is its [`ErrorWriter`], and which requests match (the server's
//! routing).

use interlingua_core::call::Call;
use interlingua_core::exchange::{Exchange, Open, Request};
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::out::Out;

/// Writes the error responses of one request in the form of a protocol.
pub trait ErrorWriter: Send + 'static {
    /// Notes what an error response repeats of its request, such as an id. Not called if the head of the request was
    /// refused.
    fn read(&mut self, request: &Request<'_>) {
        let _ = request;
    }

    /// The message for a path that does not exist.
    fn no_such_path(request: &Request<'_>) -> String {
        let _ = request;
        "no endpoint at this path".to_owned()
    }

    /// Writes status, headers and body.
    fn write(&self, fault: &Fault, out: &mut Out);
}

/// Answers every request with an error of the protocol.
#[derive(Debug, Default)]
pub struct Fallback<W> {
    writer: W,
}

impl<W: ErrorWriter + Default> Fallback<W> {
    /// The constructor for [`Mounted::fallback`](interlingua_core::exchange::Mounted::fallback).
    #[must_use]
    pub fn open() -> Open {
        Box::new(|| Box::new(Self::default()))
    }
}

/// The constructor for the fallback of a protocol that writes all of its errors with this function.
#[must_use]
pub fn writing(write: fn(&Fault, &mut Out)) -> Open {
    struct FaultWriter(fn(&Fault, &mut Out));

    impl ErrorWriter for FaultWriter {
        fn write(&self, fault: &Fault, out: &mut Out) {
            (self.0)(fault, out);
        }
    }

    Box::new(move || Box::new(Fallback { writer: FaultWriter(write) }))
}

impl<W: ErrorWriter> Exchange for Fallback<W> {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.writer.read(request);
        Err(Fault::new(FaultKind::NoSuchPath, W::no_such_path(request)))
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.writer.write(fault, out);
    }
}
