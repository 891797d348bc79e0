//! What the program of a suite does before it plays.

use super::arguments::{Arguments, Suite, Wish};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};

/// Does what was typed.
pub(crate) fn obey(
    suite: &Suite,
    markdown: impl FnOnce() -> String,
    play: impl FnOnce(&Arguments) -> ExitCode,
) -> ExitCode {
    match suite.read(std::env::args().skip(1)) {
        Ok(Wish::Play(arguments)) => play(&arguments),
        Ok(Wish::Markdown) => {
            print!("{}", markdown());
            ExitCode::SUCCESS
        }
        Ok(Wish::Help) => {
            println!("{}", suite.usage());
            ExitCode::SUCCESS
        }
        Ok(Wish::Nothing) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}\n\n{}", suite.usage());
            ExitCode::from(2)
        }
    }
}

pub(crate) fn runtime() -> Result<Runtime, ExitCode> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| {
        eprintln!("no runtime: {error}");
        ExitCode::FAILURE
    })
}
