//! The standard gateway with one additional protocol.

fn main() -> std::process::ExitCode {
    interlingua::cli::exit(interlingua::Gateway::builtin().serve::<custom_adapter::Plain>().main())
}
