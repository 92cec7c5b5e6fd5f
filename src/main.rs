//! The gateway that ships: all built-in protocols.

use std::process::ExitCode;

/// Many small buffers live and die on every worker: this allocator spares the locks and the trips to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    interlingua::cli::exit(interlingua::Gateway::builtin().main())
}
