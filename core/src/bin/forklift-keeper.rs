//! The keeper program: parent of one Postgres server. Started by the library only.

fn main() -> std::process::ExitCode {
    forklift::postgres::keeper::main()
}
