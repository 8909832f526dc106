//! Arguments to configuration to runtime; sets the exit code.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use radiosonde::config::{Cli, Command, DescribeArgs, DescribeFormat, DescribeSection, HealthcheckArgs};
use radiosonde::healthcheck;
use radiosonde::runtime::{engine, frontend, serve};
use radiosonde::telemetry::docs::{self, Section};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        None => serve::run(&cli.serve).context("radiosonde serve"),
        Some(Command::Serve(args)) => serve::run(args).context("radiosonde serve"),
        Some(Command::Frontend(args)) => frontend::run(args).context("radiosonde frontend"),
        Some(Command::Engine(args)) => engine::run(args).context("radiosonde engine"),
        Some(Command::Healthcheck(args)) => return check_health(args),
        Some(Command::Telemetry(args)) => describe(*args).context("radiosonde telemetry"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Docker keeps what a health check prints, so it goes to standard output in any case.
fn check_health(args: &HealthcheckArgs) -> ExitCode {
    let answer = healthcheck::run(args);
    let _ = writeln!(std::io::stdout().lock(), "{}", answer.line); // the exit code says the rest
    if answer.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is emitted, on standard output.
fn describe(args: DescribeArgs) -> anyhow::Result<()> {
    let sections = match args.section {
        DescribeSection::Metrics => &[Section::Metrics],
        DescribeSection::Traces => &[Section::Traces],
        DescribeSection::Logs => &[Section::Logs],
        DescribeSection::All => Section::ALL,
    };
    let text = match args.format {
        DescribeFormat::Markdown => docs::markdown(sections)?,
        DescribeFormat::Json => docs::json(sections)?,
    };
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Logging may not have started yet.
#[expect(clippy::print_stderr, reason = "the last words of a command are for whoever started it")]
fn complain(error: &anyhow::Error) {
    eprintln!("{error:#}");
}
