//! The engine's side of the sockets: a thread that is not the scheduler's takes messages in, sends outputs, events and
//! heartbeats out, and goes on while the scheduler is stuck.

use std::collections::HashMap;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::drills::{Drills, Passage};
use crate::io_struct::{
    EngineEvent, EngineInfo, EngineOutput, Envelope, FromEngine, HttpWorkerIpc, StepInFlight, ToEngine,
};
use crate::ipc::{self, Frames, IpcError};
use crate::scheduler::SchedulerInput;
use crate::scheduler::outbox::Outbox;
use crate::scheduler::vitals::VitalsPage;
use crate::telemetry::LogControl;
use crate::telemetry::labels::Hop;

/// How often the engine says that it is there.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Messages for one frontend; one that lets more pile up does not read any more, and is cut off.
const OUTBOX_CAPACITY: usize = 4096;

/// The frontends that are connected. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    connected: Arc<Mutex<HashMap<HttpWorkerIpc, mpsc::Sender<Envelope<FromEngine>>>>>,
    vitals: Arc<VitalsPage>,
}

impl Workers {
    /// Nobody yet.
    #[must_use]
    pub fn new(vitals: Arc<VitalsPage>) -> Self {
        Self { connected: Arc::default(), vitals }
    }

    fn connected(&self) -> MutexGuard<'_, HashMap<HttpWorkerIpc, mpsc::Sender<Envelope<FromEngine>>>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox for Workers {
    fn send(&mut self, worker: &HttpWorkerIpc, msg: FromEngine) {
        let mut connected = self.connected();
        let Some(sender) = connected.get(worker) else { return };
        if sender.try_send(Envelope::now(msg)).is_err() {
            tracing::warn!(%worker, capacity = OUTBOX_CAPACITY, "frontend does not read, cut off");
            connected.remove(worker); // its connection ends when its queue does
        }
    }

    fn broadcast(&mut self, msg: FromEngine) {
        let envelope = Envelope::now(msg);
        match &envelope.msg {
            FromEngine::Event(EngineEvent::StepBegan(step)) => {
                self.vitals.step_began(StepInFlight { step: *step, began: envelope.sent_at });
            }
            FromEngine::Event(EngineEvent::StepEnded(_)) => self.vitals.step_ended(),
            _ => {}
        }
        self.connected().retain(|_, sender| sender.try_send(envelope.clone()).is_ok());
    }
}

/// What the ipc thread works with.
pub struct EngineIpc {
    /// Where frontends come in.
    pub listener: StdUnixListener,
    /// Who is there.
    pub workers: Workers,
    /// Where their messages go.
    pub inbox: mpsc::Sender<SchedulerInput>,
    /// What is changed here, where it is done whatever the scheduler does.
    pub controls: Controls,
}

/// What frontends change of this process, not of its scheduler.
#[derive(Debug, Clone)]
pub struct Controls {
    /// What may go wrong on purpose.
    pub drills: Drills,
    /// What is logged.
    pub log: LogControl,
}

impl Controls {
    fn take(&self, message: &ToEngine) {
        match message {
            ToEngine::Fault(fault) => self.drills.switch_on(*fault),
            ToEngine::FaultsOff => self.drills.switch_off(),
            // A frontend sends only what it could read itself.
            ToEngine::LogFilter(filter) => drop(self.log.change(Some(filter), None)),
            _ => {}
        }
    }
}

impl EngineIpc {
    /// Starts the thread. The model is announced when it is put into the returned place.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made.
    pub fn spawn(self) -> std::io::Result<watch::Sender<Option<EngineInfo>>> {
        let (ready, model) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        self.listener.set_nonblocking(true)?;
        thread::Builder::new().name("ipc".to_owned()).spawn(move || runtime.block_on(self.accept(model)))?;
        Ok(ready)
    }

    async fn accept(self, model: watch::Receiver<Option<EngineInfo>>) {
        let listener = match UnixListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "engine cannot listen for frontends"),
        };
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let controls = self.controls.clone();
                        let (workers, inbox) = (self.workers.clone(), self.inbox.clone());
                        connections.spawn(connection(stream, workers, inbox, model.clone(), controls));
                    }
                    Err(error) => tracing::warn!(%error, "a frontend could not connect"),
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// One frontend, from hello to the end of its connection.
async fn connection(
    stream: UnixStream,
    workers: Workers,
    inbox: mpsc::Sender<SchedulerInput>,
    model: watch::Receiver<Option<EngineInfo>>,
    controls: Controls,
) {
    let mut frames = ipc::frames(stream);
    let hello = match ipc::welcome(&mut frames).await {
        Ok(hello) => hello,
        Err(error) => return tracing::warn!(%error, "a frontend was refused"),
    };
    let worker = hello.http_worker_ipc;
    let (sender, outbox) = mpsc::channel(OUTBOX_CAPACITY);
    workers.connected().insert(worker.clone(), sender.clone());
    tracing::info!(%worker, pid = hello.pid, "frontend connected");
    let (sink, stream) = frames.split();
    let ended = tokio::select! {
        ended = write(sink, outbox, model, &workers.vitals, &controls.drills) => ended,
        ended = read(stream, &worker, sender.downgrade(), &inbox, &workers.vitals, &controls) => ended,
    };
    workers.connected().remove(&worker);
    tracing::info!(%worker, reason = %ended, "frontend gone");
    workers.vitals.inbox_entered();
    let _ = inbox.send(SchedulerInput::WorkerGone(worker)).await; // no scheduler, nothing to forget
}

/// Takes messages in. A request is in the inbox, and says so, before the scheduler sees it.
async fn read(
    mut stream: SplitStream<Frames>,
    worker: &HttpWorkerIpc,
    events: mpsc::WeakSender<Envelope<FromEngine>>,
    inbox: &mpsc::Sender<SchedulerInput>,
    vitals: &VitalsPage,
    controls: &Controls,
) -> IpcError {
    loop {
        let message: Envelope<ToEngine> = match stream.next().await {
            None => return IpcError::Closed,
            Some(Err(error)) => return error.into(),
            Some(Ok(frame)) => match ipc::decode(&frame) {
                Ok(message) => message,
                Err(error) => return error,
            },
        };
        controls.drills.before_engine_reads().await;
        controls.take(&message.msg);
        if let (Some((rid, serial, _)), Some(events)) = (message.msg.request(), events.upgrade()) {
            let entered = EngineEvent::HopEntered { rid: rid.clone(), serial, hop: Hop::Inbox };
            let _ = events.try_send(Envelope::now(FromEngine::Event(entered))); // a full outbox ends the connection
        }
        vitals.inbox_entered();
        if inbox.send(SchedulerInput::Message(worker.clone(), Box::new(message))).await.is_err() {
            return IpcError::Closed;
        }
    }
}

/// Sends outputs and events in order, the model once it is there, and a heartbeat every 250 ms.
async fn write(
    mut sink: SplitSink<Frames, bytes::Bytes>,
    mut outbox: mpsc::Receiver<Envelope<FromEngine>>,
    mut model: watch::Receiver<Option<EngineInfo>>,
    vitals: &VitalsPage,
    drills: &Drills,
) -> IpcError {
    let mut late = FuturesUnordered::new();
    let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut announced, mut health_check_outputs) = (false, 0);
    loop {
        let message = tokio::select! {
            biased;
            _ = heartbeat.tick() => {
                let heartbeat = vitals.heartbeat(outbox.len(), health_check_outputs);
                Envelope::now(FromEngine::Event(EngineEvent::Heartbeat(heartbeat)))
            }
            Ok(info) = model.wait_for(Option::is_some), if !announced => {
                announced = true;
                let Some(info) = info.clone() else { continue };
                Envelope::now(FromEngine::Ready(info))
            }
            Some(message) = late.next() => message,
            message = outbox.recv() => match message {
                Some(message) => {
                    health_check_outputs += u64::from(is_health_check_output(&message)); // even if it is lost from here on
                    match passage(&message, drills) {
                        Passage::Free => message,
                        Passage::Lost => continue,
                        Passage::Late(by) => {
                            late.push(drills.delay(by).map(move |()| message));
                            continue;
                        }
                    }
                }
                None => return IpcError::Closed,
            },
        };
        let sent = match ipc::encode(&message) {
            Ok(frame) => sink.feed(frame).await.map_err(IpcError::from),
            Err(error) => Err(error),
        };
        let flushed = match sent {
            Ok(()) if outbox.is_empty() => sink.flush().await.map_err(IpcError::from),
            other => other,
        };
        if let Err(error) = flushed {
            return error;
        }
    }
}

/// A drill may lose or delay a busy scheduler's answers to probes, and nothing else.
fn passage(message: &Envelope<FromEngine>, drills: &Drills) -> Passage {
    if is_health_check_output(message) { drills.health_check_output() } else { Passage::Free }
}

fn is_health_check_output(message: &Envelope<FromEngine>) -> bool {
    matches!(message.msg, FromEngine::Output(EngineOutput::HealthCheck(_)))
}
