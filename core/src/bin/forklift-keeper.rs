//! The keeper program: parent of one Postgres server, or a capture in the background. Started by the library only.

fn main() -> std::process::ExitCode {
    forklift::project::background_task(&forklift::Environment::read()).unwrap_or_else(forklift::postgres::keeper::main)
}
