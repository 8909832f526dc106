//! The frontend's side of the socket: requests out, outputs through the detokenizer to their waiters, events to the
//! books.

use std::path::Path;
use std::thread;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::io_struct::{
    BatchEmbeddingOutput, BatchTokenIdOutput, EngineInfo, EngineOutput, Envelope, FromEngine, HttpWorkerIpc,
};
use crate::ipc::{self, Frames, IpcError};
use crate::telemetry::labels::Hop;
use crate::tokenizer_manager::receive::Received;
use crate::tokenizer_manager::{ToEngineQueue, TokenizerManager};

/// Outputs on their way through the frontend; beyond it the socket is not read.
const STATION_CAPACITY: usize = 1024;

/// A connection to an engine, introduced.
pub struct EngineLink {
    frames: Frames,
    /// The engine's process.
    pub engine_pid: u32,
}

impl EngineLink {
    /// Connects to the engine at `path`.
    ///
    /// # Errors
    /// Nobody is there, or somebody who is no engine of this build.
    pub async fn connect(path: &Path) -> Result<Self, IpcError> {
        let mut frames = ipc::frames(UnixStream::connect(path).await?);
        let name = format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let hello = ipc::introduce(&mut frames, HttpWorkerIpc::new(&name)).await?;
        Ok(Self { frames, engine_pid: hello.pid })
    }

    /// Carries messages both ways until the connection ends, and says why it did. `on_ready` hears of the model, once.
    pub async fn run(
        self,
        manager: TokenizerManager,
        queue: &mut ToEngineQueue,
        on_ready: impl FnOnce(EngineInfo),
    ) -> IpcError {
        let (sink, stream) = self.frames.split();
        let (to_receive, received) = mpsc::channel(STATION_CAPACITY);
        let epoch = manager.epoch();
        let to_detokenizer = match detokenizer(manager.clone(), epoch, to_receive.clone()) {
            Ok(sender) => sender,
            Err(error) => return error.into(),
        };
        let stations = Stations { manager: manager.clone(), to_detokenizer, to_receive };
        let error = tokio::select! {
            error = write(sink, queue, epoch) => error,
            error = read(stream, &stations, on_ready) => error,
            () = manager.handle_loop(received) => IpcError::Closed,
        };
        error
    }
}

/// Where outputs go.
struct Stations {
    manager: TokenizerManager,
    to_detokenizer: mpsc::Sender<ToDetokenizer>,
    to_receive: mpsc::Sender<Received>,
}

/// What passes through the detokenizer.
enum ToDetokenizer {
    TokenIds(BatchTokenIdOutput),
    Embeddings(BatchEmbeddingOutput),
}

/// The detokenizer on a thread of its own: text of many streams must not delay the frontend's tasks. It may outlive its
/// connection by a batch; what the engine of `epoch` said is of no use once there is another.
fn detokenizer(
    manager: TokenizerManager,
    epoch: u64,
    to_receive: mpsc::Sender<Received>,
) -> std::io::Result<mpsc::Sender<ToDetokenizer>> {
    let (sender, mut batches) = mpsc::channel(STATION_CAPACITY);
    thread::Builder::new().name("detokenizer".to_owned()).spawn(move || {
        while let Some(batch) = batches.blocking_recv() {
            manager.drills().before_detokenizing();
            if manager.epoch() != epoch {
                return;
            }
            let received = match batch {
                ToDetokenizer::TokenIds(batch) => Received::BatchStr(manager.detokenize(batch, epoch)),
                ToDetokenizer::Embeddings(batch) => {
                    manager.pass_on(&batch);
                    Received::BatchEmbedding(batch)
                }
            };
            if to_receive.blocking_send(received).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

async fn read(mut stream: SplitStream<Frames>, stations: &Stations, on_ready: impl FnOnce(EngineInfo)) -> IpcError {
    let (engine, drills) = (stations.manager.engine(), stations.manager.drills());
    let mut on_ready = Some(on_ready);
    loop {
        engine.back_at_socket();
        let frame = stream.next().await;
        engine.leaves_socket(Hop::IpcToFrontend);
        drills.before_frontend_reads().await;
        let Envelope { msg, sent_at } = match frame {
            None => return IpcError::Closed,
            Some(Err(error)) => return error.into(),
            Some(Ok(frame)) => match ipc::decode::<Envelope<FromEngine>>(&frame) {
                Ok(message) => message,
                Err(error) => return error,
            },
        };
        match msg {
            FromEngine::Ready(info) => {
                if let Some(on_ready) = on_ready.take() {
                    on_ready(info);
                }
            }
            FromEngine::Event(event) => stations.manager.note(Envelope { msg: event, sent_at }),
            FromEngine::Output(output) => {
                stations.manager.accept(&output, sent_at);
                let delivered = match output {
                    EngineOutput::BatchTokenId(batch) => {
                        engine.leaves_socket(Hop::Detokenizer);
                        stations.to_detokenizer.send(ToDetokenizer::TokenIds(batch)).await.is_ok()
                    }
                    EngineOutput::BatchEmbedding(batch) => {
                        engine.leaves_socket(Hop::Detokenizer);
                        stations.to_detokenizer.send(ToDetokenizer::Embeddings(batch)).await.is_ok()
                    }
                    EngineOutput::HealthCheck(answer) => {
                        stations.to_receive.send(Received::HealthCheck(answer)).await.is_ok()
                    }
                };
                if !delivered {
                    return IpcError::Closed;
                }
            }
        }
    }
}

async fn write(mut sink: SplitSink<Frames, bytes::Bytes>, queue: &mut ToEngineQueue, epoch: u64) -> IpcError {
    while let Some(message) = queue.next(epoch).await {
        let sent = match ipc::encode(&message) {
            Ok(frame) => sink.send(frame).await.map_err(IpcError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            return error;
        }
    }
    IpcError::Closed
}
