//! `radiosonde engine`: the scheduler on a thread of its own, and nothing that could keep it.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

use super::RuntimeError;
use super::engine_ipc::{Controls, EngineIpc, Workers};
use crate::config::{EncoderPrecision, EngineArgs, ModelArgs, SchedulerArgs};
use crate::drills::DrilledRunner;
use crate::io_struct::{EngineInfo, EngineLimits, KernelBackend, ModelInfo, ModelSource, TokenId};
use crate::ipc;
use crate::model_hub;
use crate::model_runner::bert::{self, EncoderOptions, Precision};
use crate::model_runner::scripted::ScriptedRunner;
use crate::model_runner::weights::{self, LoadOptions};
use crate::model_runner::{ModelRunner, PAGE_SIZE, PageId, SequenceSlice};
use crate::scheduler::event_loop::{ChannelInbox, event_loop};
use crate::scheduler::schedule_policy::{FirstPriority, Priorities};
use crate::scheduler::vitals::VitalsPage;
use crate::scheduler::{PrefixCache, Scheduler, SchedulerConfig};
use crate::structured::worker::GrammarWorkers;
use crate::structured::{GrammarError, Grammars};
use crate::telemetry::{self, LogControl};
use crate::tokenizer::Tokenizer;

/// Messages received and not yet seen by the scheduler; beyond it the socket is not read.
const INBOX_CAPACITY: usize = 4096;

/// Runs an engine until it is told to end.
///
/// # Errors
/// No socket, or no model.
pub fn run(args: &EngineArgs) -> Result<(), RuntimeError> {
    let log = telemetry::log::init_plain(&super::log_config(&args.log))?;
    let listener = match args.supervised {
        Some(parent) => inherit_listener(parent)?,
        None => {
            let path = args.listen.as_deref().unwrap_or(std::path::Path::new("engine.sock"));
            let listener = ipc::listen(path).map_err(RuntimeError::EngineSocket)?;
            tracing::info!(path = %path.display(), "engine listens for frontends");
            listener
        }
    };
    end_on_signal(listener.try_clone()?)?;
    let outcome = serve(args, &listener, log);
    ipc::remove_socket(&listener);
    outcome
}

/// Loads the model and turns the scheduler; the ipc thread speaks with frontends all the while.
fn serve(args: &EngineArgs, listener: &UnixListener, log: LogControl) -> Result<(), RuntimeError> {
    let vitals = Arc::new(VitalsPage::default());
    let workers = Workers::new(Arc::clone(&vitals));
    let (inbox, received) = mpsc::channel(INBOX_CAPACITY);
    let drills = super::drills(&args.drills);
    let controls = Controls { drills: drills.clone(), log };
    let ready = EngineIpc { listener: listener.try_clone()?, workers: workers.clone(), inbox, controls }.spawn()?;
    let source = model_hub::resolve(args.model.model.as_deref())?;
    drills.before_load();
    let runner = DrilledRunner::around(load(&source, &args.model, &args.scheduler)?, &drills);
    let mut info = runner.info().clone();
    info.max_total_tokens -= info.max_total_tokens % PAGE_SIZE as u32; // only whole pages are handed out
    tracing::info!(
        model = info.name,
        architecture = info.architecture,
        context_length = info.context_length,
        max_total_tokens = info.max_total_tokens,
        kernels = info.kernels.map_or("none", KernelBackend::as_str),
        weight_bytes = info.weight_bytes,
        load_seconds = info.load_seconds,
        "model loaded"
    );
    let config = scheduler_config(&args.scheduler, &info);
    let mut scheduler = Scheduler::new(runner, config, Arc::clone(&vitals), drills.clone());
    if info.task.is_generation() {
        scheduler = scheduler.with_grammars(grammar_workers(&info)?);
    }
    let mut inbox = ChannelInbox::new(received, Arc::clone(&vitals));
    ready.send_replace(Some(EngineInfo { model: info, limits: limits(&args.scheduler) }));
    let turning = thread::Builder::new().name("scheduler".to_owned()).spawn(move || {
        let mut out = workers;
        event_loop(&mut scheduler, &mut inbox, &mut out, &vitals, &drills);
    })?;
    match turning.join() {
        Ok(()) => Err(RuntimeError::EngineGone("the ipc thread ended".to_owned())),
        Err(_) => Err(RuntimeError::EngineGone("the scheduler panicked".to_owned())),
    }
}

/// Threads for grammars; the vocabulary is read when the first one comes.
fn grammar_workers(info: &ModelInfo) -> std::io::Result<Arc<GrammarWorkers>> {
    let info = info.clone();
    GrammarWorkers::start(move || {
        let tokenizer = Tokenizer::for_source(&info.source).map_err(GrammarError::new)?;
        Grammars::to_follow(tokenizer, &info)
    })
}

/// A model that has run once.
fn load(
    source: &ModelSource,
    model: &ModelArgs,
    scheduler: &SchedulerArgs,
) -> Result<Box<dyn ModelRunner>, RuntimeError> {
    let max_total_tokens = scheduler.max_total_tokens;
    let &ModelArgs { context_length, threads, pin_threads, kv_cache_dtype, kernels, .. } = model;
    let options = LoadOptions { context_length, max_total_tokens, threads, pin_threads, kv_cache_dtype, kernels };
    let mut runner: Box<dyn ModelRunner> = match source {
        ModelSource::Gguf(path) => {
            weights::load(path, &options).map_err(|error| RuntimeError::Load(error.to_string()))?
        }
        ModelSource::Folder(path) if weights::folder::is_generator(path) => {
            weights::load_folder(path, &options).map_err(|error| RuntimeError::Load(error.to_string()))?
        }
        ModelSource::Folder(path) => {
            let precision = match model.encoder_precision {
                EncoderPrecision::F32 => Precision::F32,
                EncoderPrecision::Int8 => Precision::Int8,
            };
            let options = EncoderOptions { context_length, precision, threads, kernels };
            bert::load(path, &options).map_err(|error| RuntimeError::Load(error.to_string()))?
        }
        ModelSource::Scripted(script) => {
            let runner = ScriptedRunner::load(script, model.context_length, max_total_tokens);
            return Ok(Box::new(runner.map_err(|error| RuntimeError::Load(error.to_string()))?));
        }
    };
    let first = SequenceSlice { tokens: &[TokenId(0)], start: 0, pages: &[PageId(0)], wants_logits: true };
    runner.forward(&[first]).map_err(|error| RuntimeError::Load(error.to_string()))?;
    Ok(runner)
}

fn scheduler_config(args: &SchedulerArgs, info: &ModelInfo) -> SchedulerConfig {
    SchedulerConfig {
        chunked_prefill_size: args.chunked_prefill_size as usize,
        max_step_time: args.step_limit(),
        policy: args.schedule_policy,
        priorities: priorities(args),
        prefix_cache: if args.disable_radix_cache { PrefixCache::Off } else { PrefixCache::On },
        max_prefill_tokens: args.max_prefill_tokens as usize,
        max_running_requests: args.max_running_requests as usize,
        max_queued_requests: args.max_queued_requests as usize,
        max_total_tokens: info.max_total_tokens as usize,
    }
}

fn priorities(args: &SchedulerArgs) -> Priorities {
    if !args.enable_priority_scheduling {
        return Priorities::Off;
    }
    let low = args.schedule_low_priority_values_first;
    let first = if low { FirstPriority::Low } else { FirstPriority::High };
    Priorities::On { first, preemption_threshold: args.priority_scheduling_preemption_threshold }
}

/// What the frontends are told of it.
fn limits(args: &SchedulerArgs) -> EngineLimits {
    EngineLimits {
        max_running_requests: args.max_running_requests,
        max_queued_requests: args.max_queued_requests,
        chunked_prefill_size: args.chunked_prefill_size,
        max_step_time: args.max_step_time,
        page_size: PAGE_SIZE as u32,
        priority_scheduling: args.enable_priority_scheduling,
    }
}

/// Standard input is the listening socket. The kernel ends the engine with its parent, even while it is stopped; a
/// parent that has died already is noticed here.
fn inherit_listener(parent: u32) -> Result<UnixListener, RuntimeError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
    let listener = UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let is_parent = |pid: Pid| u32::try_from(pid.as_raw_nonzero().get()).is_ok_and(|pid| pid == parent);
    if getppid().is_some_and(is_parent) {
        Ok(listener)
    } else {
        Err(RuntimeError::EngineGone("its parent has ended".to_owned()))
    }
}

/// Ends the process on SIGTERM, SIGINT and SIGHUP, whatever the scheduler does, and leaves no socket behind.
fn end_on_signal(listener: UnixListener) -> Result<(), RuntimeError> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            tracing::debug!(signal, "engine ends");
            ipc::remove_socket(&listener);
            std::process::exit(0);
        }
    })?;
    Ok(())
}
