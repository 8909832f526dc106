//! Arguments to configuration to runtime; sets the exit code.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use radiosonde::config::{Cli, Command};
use radiosonde::runtime::{engine, frontend, serve};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        None => serve::run(&cli.serve).context("radiosonde serve"),
        Some(Command::Serve(args)) => serve::run(args).context("radiosonde serve"),
        Some(Command::Frontend(args)) => frontend::run(args).context("radiosonde frontend"),
        Some(Command::Engine(args)) => engine::run(args).context("radiosonde engine"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Logging may not have started yet.
#[expect(clippy::print_stderr, reason = "the last words of a command are for whoever started it")]
fn complain(error: &anyhow::Error) {
    eprintln!("{error:#}");
}
