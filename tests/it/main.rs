//! Tests from outside: real processes, real sockets, real files. One binary, so that it is linked once.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as the test does")]

mod support;
mod model_hub;
mod probes;
mod traces;
mod trace_export;
mod processes;
mod admin;
mod drain;
mod healthcheck;
mod api;
mod cases;
mod access;
mod generation;
mod supervision;
mod real_model;
mod embeddings;
mod folders;
mod corpora;
mod faults;
mod metrics;
mod series;
mod prometheus;
mod logs;
mod contract_live;
