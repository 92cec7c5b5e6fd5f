//! The standard gateway with one additional protocol.

use std::process::ExitCode;

use custom_adapter::Plain;

fn main() -> ExitCode {
    interlingua::cli::exit(interlingua::Gateway::builtin().serve::<Plain>().main())
}
