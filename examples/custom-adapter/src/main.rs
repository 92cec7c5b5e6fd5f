//! The gateway that ships, and one protocol more. All there is to say here is which.

use std::process::ExitCode;

use custom_adapter::Plain;

fn main() -> ExitCode {
    interlingua::cli::exit(interlingua::Gateway::builtin().serve::<Plain>().main())
}
