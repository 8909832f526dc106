//! The scheduler, turned by hand. After each turn, every page of the pool has one owner.

mod bench;
mod batches;
mod probes;
mod refusals;
mod aborts;
mod pause;
mod scores;

pub(super) use bench::{Arrivals, Bench, ROOMY, abort, bench, expected, message, probe, request};
