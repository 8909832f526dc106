//! radiosonde: an LLM generation server whose health probe tells the truth.
//!
//! # One probe, station by station
//!
//! The modules stand in the order in which a probe flies through them; read them in this order, once.
//!
//! 1. [`http_server::health`] judges the short cuts, submits a minimal real request and waits for the verdict.
//! 2. [`tokenizer_manager`] numbers the request, enters it in its table and sends it over [`ipc`].
//! 3. [`scheduler`] decides: idle, the probe runs as a request; busy, it waits in `return_health_check_ipcs`.
//! 4. [`model_runner`] runs one forward pass over the batch.
//! 5. [`detokenizer`] turns the token into text.
//! 6. [`tokenizer_manager`] receives the answer, moves `last_receive_tstamp` and wakes the waiter.
//!
//! Whatever happens on the way, [`probe_ledger`] keeps every hop, and writes the trace when the probe ends.

pub mod config;
pub mod http_server;
pub mod tokenizer_manager;
pub mod tokenizer;
pub mod structured;
pub mod io_struct;
pub mod ipc;
pub mod scheduler;
pub mod model_runner;
pub mod detokenizer;
pub mod server_status;
pub mod engine_view;
pub mod runtime_lag;
pub mod probe_ledger;
pub mod incidents;
pub mod model_hub;
pub mod drills;
pub mod runtime;
pub mod healthcheck;
pub mod clock;
pub mod telemetry;
