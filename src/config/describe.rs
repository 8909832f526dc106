//! What `radiosonde telemetry` prints.

use clap::{Args, ValueEnum};

/// The help of the command, with the shape of the JSON.
pub(super) const LONG_ABOUT: &str = "Print everything that is emitted: series, spans, events, attributes, log lines.

The markdown of one section is the file of its name in docs/. The JSON is one object with a member for each section:
  metrics  {series: [{name, kind, unit, help, labels: [{name, values, closed}]}], aliases: [{name, labels, meaning}]};
           with `closed`, `values` are all there can be
  traces   {spans: [{name, service, meaning}], events: [{name, on, meaning}], attributes: [{key, on, meaning}],
           variables: [{name, meaning, is_honoured}]}
  logs     {events: [{level, message, fields, meaning}]}";

/// `radiosonde telemetry`
#[derive(Debug, Clone, Copy, Args)]
pub struct DescribeArgs {
    /// For people or for programs.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "markdown")]
    pub format: DescribeFormat,
    /// Which part of it.
    #[arg(long, value_enum, value_name = "SECTION", default_value = "all")]
    pub section: DescribeSection,
}

/// Shapes of the description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DescribeFormat {
    /// Tables.
    Markdown,
    /// One object.
    Json,
}

/// Parts of the description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DescribeSection {
    /// The series, and their names elsewhere.
    Metrics,
    /// The spans, their events and attributes, and the variables of export.
    Traces,
    /// The log lines.
    Logs,
    /// Everything.
    All,
}
