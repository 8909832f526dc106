//! The reference of all flags, read from the command line's own declaration: the source of `docs/configuration.md`.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use super::Cli;

const OPENING: &str = "# Configuration

Every flag of a server is an environment variable too; a flag wins over its variable. A value that cannot be is refused
at start, with exit code 2 and the limit. `radiosonde --help` says the same. This file is generated:
`UPDATE_EXPECT=1 cargo test --release --lib config`.

Durations are written `800ms`, `20s`, `2m` or in plain seconds.
";

const ENDING: &str = "
## Variables without a flag

| variable | what |
|---|---|
| `RADIOSONDE_CACHE` | where models are kept; default: `radiosonde/` in the user's cache folder |
| `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE` | the hub that models are fetched from, as its own tools read them |
| `OTEL_*` | where telemetry goes and what it is called, see [traces](traces.md) |
| `RUST_BACKTRACE` | `1`: a panic writes its backtrace to standard error, and into the incident report |
";

/// The reference as markdown.
#[must_use]
pub fn markdown() -> String {
    let root = Cli::command();
    let mut text = OPENING.to_owned();
    section(&mut text, "radiosonde serve", "The default: `radiosonde` alone means `radiosonde serve`.", &root, &[]);
    for command in root.get_subcommands().filter(|command| command.get_name() != "serve") {
        let title = format!("radiosonde {}", command.get_name());
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        section(&mut text, &title, &format!("{about}."), command, &names(&root));
    }
    text.push_str(ENDING);
    text
}

/// The flags of `command`, without those in `known`, which are told of as a whole.
fn section(text: &mut String, title: &str, about: &str, command: &Command, known: &[String]) {
    let _ = write!(text, "\n## {title}\n\n{about}\n");
    let visible = || command.get_arguments().filter(|flag| !flag.is_hide_set() && flag.get_long().is_some());
    let is_known = |flag: &&Arg| known.iter().any(|name| Some(name.as_str()) == flag.get_long());
    if visible().any(|flag| is_known(&flag)) {
        let shared: Vec<_> = visible().filter(is_known).map(|flag| format!("`--{}`", name(flag))).collect();
        let _ = write!(text, "\nAs for `serve`: {}.\n", shared.join(", "));
    }
    let mut heading = None;
    for flag in visible().filter(|flag| !is_known(flag)) {
        if heading != Some(flag.get_help_heading()) {
            heading = Some(flag.get_help_heading());
            if let Some(heading) = flag.get_help_heading() {
                let _ = write!(text, "\n### {heading}\n");
            }
            text.push_str("\n| flag | variable | default | what |\n|---|---|---|---|\n");
        }
        text.push_str(&row(flag));
    }
}

fn names(command: &Command) -> Vec<String> {
    command.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect()
}

fn name(flag: &Arg) -> &str {
    flag.get_long().unwrap_or_default()
}

fn row(flag: &Arg) -> String {
    let takes_value = flag.get_action().takes_values();
    let value = flag.get_value_names().filter(|_| takes_value).and_then(|names| names.first());
    let value = value.map(|name| format!(" <{name}>")).unwrap_or_default();
    let variable = flag.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let defaults = flag.get_default_values().iter().filter(|_| takes_value);
    let default = defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect::<Vec<_>>().join(" ");
    let help = flag.get_long_help().or_else(|| flag.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    format!("| `--{}{value}` | {variable} | {default} | {help}{} |\n", name(flag), values(flag))
}

/// What a flag with a closed set of values takes.
fn values(flag: &Arg) -> String {
    let values: Vec<_> = flag.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if values.is_empty() || !flag.get_action().takes_values() {
        return String::new();
    }
    format!(" One of {}.", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_documented() {
        expect_test::expect_file!["../../docs/configuration.md"].assert_eq(&markdown());
    }
}
