//! What HTTP holds: the request table and `last_receive_tstamp`.

pub mod submit;
pub mod embed;
pub mod request;
pub mod receive;
pub mod liveness;
pub mod control;
pub mod grammar;
mod flushes;
pub mod abort;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::clock::MonoNanos;
use crate::detokenizer::Detokenizer;
use crate::drills::Drills;
use crate::engine_view::{EngineView, Link, kernel};
use crate::incidents::IncidentLog;
use crate::io_struct::{AbortReq, EngineLimits, Envelope, ModelInfo, ModelTask, Rid, ToEngine};
use crate::probe_ledger::ProbeLedger;
use crate::probe_ledger::autopsy::Scene;
use crate::runtime_lag::RuntimeLag;
use crate::server_status::StatusBoard;
use crate::structured::{GrammarError, Grammars};
use crate::telemetry::metrics::Metrics;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::chat_template::ChatTemplate;
use flushes::Flushes;
use liveness::Liveness;
use table::{Epoch, RequestTable};

/// A loaded model as the frontend knows it.
pub struct ServedModel {
    /// What the engine said of it.
    pub info: ModelInfo,
    /// How the engine is configured.
    pub limits: EngineLimits,
    /// `--served-model-name`, or the file's name.
    pub served_name: String,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template; `None` means no chat.
    pub chat_template: Option<ChatTemplate>,
}

impl ServedModel {
    /// The most tokens of one request: the context, or the KV pool if there is one and it is smaller.
    #[must_use]
    pub fn token_limit(&self) -> u32 {
        match self.info.task {
            ModelTask::Generate => self.info.context_length.min(self.info.max_total_tokens),
            ModelTask::Embed { .. } => self.info.context_length,
        }
    }
}

/// What HTTP holds. Cheap to clone.
#[derive(Clone)]
pub struct TokenizerManager {
    inner: Arc<Inner>,
}

struct Inner {
    table: RequestTable,
    liveness: Liveness,
    engine: EngineView,
    detokenizer: Detokenizer,
    model: OnceLock<Arc<ServedModel>>,
    grammars: OnceLock<Result<Grammars, GrammarError>>,
    to_engine: mpsc::UnboundedSender<Waiting>,
    to_engine_depth: Arc<AtomicUsize>,
    control_places: Arc<Semaphore>,
    ledger: Arc<ProbeLedger>,
    incidents: IncidentLog,
    status: Arc<StatusBoard>,
    metrics: Arc<Metrics>,
    streams: TaskTracker,
    lag: Arc<RuntimeLag>,
    drills: Drills,
    flushes: Flushes,
    request_limit: Option<Duration>,
}

/// A message that waits in front of the socket.
struct Waiting {
    meant_for: Epoch,
    msg: Envelope<ToEngine>,
    /// Held until the message is taken or dropped.
    _place: Option<OwnedSemaphorePermit>,
}

/// The other end of the way to the engine: the connection takes from it. Its length is bounded:
/// [`control::MAX_WAITING_MESSAGES`] refuses requests, each of which puts at most two messages in, and
/// [`control::MAX_WAITING_CONTROLS`] all others.
pub struct ToEngineQueue {
    receiver: mpsc::UnboundedReceiver<Waiting>,
    depth: Arc<AtomicUsize>,
}

impl ToEngineQueue {
    /// The next message for the engine of `epoch`; what was meant for one before it is dropped. `None` when the
    /// tokenizer manager is gone.
    pub async fn next(&mut self, epoch: Epoch) -> Option<Envelope<ToEngine>> {
        loop {
            let Waiting { meant_for, msg, .. } = self.receiver.recv().await?;
            self.depth.fetch_sub(1, Relaxed);
            if meant_for >= epoch {
                return Some(msg);
            }
        }
    }
}

impl TokenizerManager {
    /// Without engine and model yet; the queue is for whoever connects. `request_limit`: how long a user's request may
    /// take.
    #[must_use]
    pub fn new(
        ledger: Arc<ProbeLedger>,
        incidents: IncidentLog,
        status: Arc<StatusBoard>,
        metrics: Arc<Metrics>,
        drills: Drills,
        request_limit: Option<Duration>,
    ) -> (Self, ToEngineQueue) {
        let (to_engine, receiver) = mpsc::unbounded_channel();
        let depth = Arc::new(AtomicUsize::new(0));
        let inner = Inner {
            table: RequestTable::default(),
            liveness: Liveness::default(),
            engine: EngineView::default(),
            detokenizer: Detokenizer::default(),
            model: OnceLock::new(),
            grammars: OnceLock::new(),
            to_engine,
            to_engine_depth: Arc::clone(&depth),
            control_places: Arc::new(Semaphore::new(control::MAX_WAITING_CONTROLS)),
            ledger,
            incidents,
            status,
            metrics,
            streams: TaskTracker::new(),
            lag: Arc::default(),
            drills,
            flushes: Flushes::default(),
            request_limit,
        };
        (Self { inner: Arc::new(inner) }, ToEngineQueue { receiver, depth })
    }

    /// The model is loaded here and there.
    pub fn serve(&self, model: ServedModel) {
        self.inner.metrics.serves(&model.served_name);
        if self.inner.model.set(Arc::new(model)).is_err() {
            tracing::warn!("the engine announced its model twice");
        }
    }

    /// The model, whether the server serves just now or not.
    #[must_use]
    pub fn loaded_model(&self) -> Option<Arc<ServedModel>> {
        self.inner.model.get().cloned()
    }

    /// What is written down when something went wrong.
    #[must_use]
    pub fn incidents(&self) -> &IncidentLog {
        &self.inner.incidents
    }

    /// What is known of the engine.
    #[must_use]
    pub fn engine(&self) -> &EngineView {
        &self.inner.engine
    }

    /// `last_receive_tstamp`.
    #[must_use]
    pub fn liveness(&self) -> &Liveness {
        &self.inner.liveness
    }

    /// The server's status.
    #[must_use]
    pub fn status(&self) -> &StatusBoard {
        &self.inner.status
    }

    /// Where everybody is.
    #[must_use]
    pub fn ledger(&self) -> &ProbeLedger {
        &self.inner.ledger
    }

    /// Messages that wait in front of the socket to the engine.
    #[must_use]
    pub fn to_engine_depth(&self) -> usize {
        self.inner.to_engine_depth.load(Relaxed)
    }

    /// The present engine; the first is 0.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.table.epoch()
    }

    /// Live requests and probes.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.inner.table.len()
    }

    /// Requests of users that somebody still listens to.
    #[must_use]
    pub fn streams_under_way(&self) -> usize {
        self.inner.streams.len()
    }

    /// Returns when nobody listens to a request any more. New ones must be refused by then.
    pub async fn all_streams_ended(&self) {
        self.inner.streams.close();
        self.inner.streams.wait().await;
    }

    /// Whether this frontend keeps up.
    #[must_use]
    pub fn lag(&self) -> &Arc<RuntimeLag> {
        &self.inner.lag
    }

    /// What may go wrong on purpose.
    #[must_use]
    pub fn drills(&self) -> &Drills {
        &self.inner.drills
    }

    /// What is known now, for the autopsy of a probe that began at `began`.
    #[must_use]
    pub fn scene(&self, began: MonoNanos) -> Scene {
        let (engine, now) = (self.inner.engine.snapshot(), MonoNanos::now());
        let (runtime_lag, process_lag) = self.inner.lag.since(began, now);
        Scene {
            engine_stopped: matches!(engine.link, Link::Connected { pid } if kernel::is_stopped(pid)),
            engine,
            lived: now.since(began),
            runtime_lag,
            process_lag,
            last_receive_age: self.inner.liveness.last_receive_tstamp().elapsed(),
            to_engine_depth: self.to_engine_depth(),
        }
    }

    fn send(&self, msg: ToEngine, epoch: Epoch) {
        self.send_from(None, msg, epoch);
    }

    fn send_from(&self, place: Option<OwnedSemaphorePermit>, msg: ToEngine, epoch: Epoch) {
        self.inner.to_engine_depth.fetch_add(1, Relaxed);
        let waiting = Waiting { meant_for: epoch, msg: Envelope::now(msg), _place: place };
        if self.inner.to_engine.send(waiting).is_err() {
            self.inner.to_engine_depth.fetch_sub(1, Relaxed);
        }
    }

    /// It concerns the present engine alone.
    fn send_abort(&self, rid: &Rid, serial: u64) {
        self.send(ToEngine::Abort(AbortReq { rid: rid.clone(), serial }), self.epoch());
    }
}

#[cfg(test)]
pub(crate) mod tests;
