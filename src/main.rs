//! The program `subagents`: delegates prompts to child agents from the command line.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
