//! Arguments to configuration to runtime; sets the exit code.

use clap::Parser;

fn main() {
    let _cli = radiosonde::config::Cli::parse();
}
