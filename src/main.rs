//! The gateway binary, with all built-in protocols.

use std::process::ExitCode;

fn main() -> ExitCode {
    interlingua::cli::exit(interlingua::Gateway::builtin().main())
}
