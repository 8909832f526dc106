//! Requests by hand: what becomes of them when the engine refuses them, or dies with their output on its way.

use tokio::sync::mpsc;

use super::control::{MAX_WAITING_CONTROLS, MAX_WAITING_MESSAGES};
use super::embed::{EmbeddingReqInput, TooLong};
use super::receive::Received;
use super::request::RequestStream;
use super::submit::{GenerateReqInput, Prompt, SubmitError};
use super::*;
use crate::http_server::generate::request::tests::model;
use crate::io_struct::{
    AbortKind, BatchEmbeddingOutput, BatchTokenIdOutput, EmbeddingOutput, EngineEvent, FinishReason, PauseMode,
    Purpose, SamplingParams, TokenId, TokenIdOutput,
};
use crate::server_status::StatusEvent;
use crate::telemetry::labels::{Hop, RequestEndpoint};
use crate::telemetry::otlp::Tracers;
use crate::telemetry::{OtlpConfig, SamplingConfig};

/// A frontend that serves a model for `task`, and the way to its engine: whoever reads there is the engine.
pub(crate) fn frontend(task: ModelTask) -> (TokenizerManager, ToEngineQueue) {
    let metrics = Arc::new(Metrics::new().unwrap());
    let (to, sampling) = (OtlpConfig::default(), SamplingConfig::default());
    let ledger = ProbeLedger::new(Arc::new(Tracers::new(&to, &sampling, metrics.exports.clone()).unwrap()));
    let status = Arc::new(StatusBoard::new(|_, _, _| ()));
    let incidents = IncidentLog::new(None, |_| ());
    let (manager, queue) =
        TokenizerManager::new(Arc::new(ledger), incidents, Arc::clone(&status), metrics, Drills::default(), None);
    let mut model = model();
    model.info.task = task;
    manager.serve(model);
    status.apply(StatusEvent::Ready);
    (manager, queue)
}

fn request(endpoint: RequestEndpoint, prompt: Prompt) -> GenerateReqInput {
    GenerateReqInput {
        rid: Rid::random(),
        prompt: Arc::new(prompt),
        sampling_params: SamplingParams::default(),
        max_new_tokens: None,
        logprobs: None,
        priority: None,
        endpoint,
    }
}

/// The request that the engine is sent next.
async fn sent(queue: &mut ToEngineQueue, epoch: Epoch) -> (Rid, u64) {
    let message = queue.next(epoch).await.unwrap().msg;
    let (rid, serial, _) = message.request().unwrap();
    (rid.clone(), serial)
}

/// One token of a request.
fn token((rid, serial): (Rid, u64), id: u32, finish_reason: Option<FinishReason>) -> TokenIdOutput {
    TokenIdOutput {
        rid,
        serial,
        purpose: Purpose::Serve,
        output_ids: vec![TokenId(id)],
        logprobs: Vec::new(),
        input_logprobs: Vec::new(),
        finish_reason,
        prompt_tokens: 1,
        completion_tokens: 1,
        cached_tokens: 0,
        num_retractions: 0,
    }
}

/// What the detokenizer has handed on is received.
async fn receive(manager: &TokenizerManager, received: Received) {
    let (sender, receiver) = mpsc::channel(1);
    sender.send(received).await.unwrap();
    drop(sender);
    manager.handle_loop(receiver).await;
}

fn too_large() -> FinishReason {
    FinishReason::Abort { message: "too much".to_owned(), kind: AbortKind::TooLarge }
}

async fn blamed(mut stream: RequestStream) -> String {
    match stream.admitted().await.unwrap_err() {
        SubmitError::ContextLength { param, .. } => param,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_the_engine_finds_too_large_is_blamed_on_the_field_that_the_api_has() {
    let (text, ids) = (|| Prompt::Text("a".to_owned()), || Prompt::Ids(vec![TokenId(1)]));
    let (manager, mut queue) = frontend(ModelTask::Generate);
    for (endpoint, prompt, field) in [
        (RequestEndpoint::Generate, text(), "text"),
        (RequestEndpoint::Generate, ids(), "input_ids"),
        (RequestEndpoint::Completions, text(), "prompt"),
        (RequestEndpoint::ChatCompletions, ids(), "messages"),
    ] {
        let stream = manager.generate_request(request(endpoint, prompt)).await.unwrap();
        let refusal = token(sent(&mut queue, 0).await, 1, Some(too_large()));
        let refusal = manager.detokenize(BatchTokenIdOutput { outputs: vec![refusal] }, 0);
        receive(&manager, Received::BatchStr(refusal)).await;
        assert_eq!(blamed(stream).await, field, "{endpoint}");
    }
    let (manager, mut queue) = frontend(ModelTask::Embed { dimensions: 4, normalised: true });
    for (endpoint, input, field) in [
        (RequestEndpoint::Encode, text(), "text"),
        (RequestEndpoint::Encode, ids(), "input_ids"),
        (RequestEndpoint::Embeddings, ids(), "input"),
    ] {
        let request = EmbeddingReqInput { rid: Rid::random(), input, too_long: TooLong::Refuse, endpoint };
        let stream = manager.embed_request(request).await.unwrap();
        let (rid, serial) = sent(&mut queue, 0).await;
        let refusal = EmbeddingOutput {
            rid,
            serial,
            purpose: Purpose::Serve,
            embedding: Vec::new(),
            finish_reason: too_large(),
            prompt_tokens: 1,
        };
        receive(&manager, Received::BatchEmbedding(BatchEmbeddingOutput { outputs: vec![refusal] })).await;
        assert_eq!(blamed(stream).await, field, "{endpoint}");
    }
}

/// The table does not know what the detokenizer had when the engine died: for it, the request has no output, and begins
/// anew. Then the text must begin anew too, wherever the old one was.
#[tokio::test]
async fn output_of_a_dead_engine_is_no_part_of_what_the_next_one_says() {
    let (manager, mut queue) = frontend(ModelTask::Generate);
    let smile = "\u{1F600}".as_bytes();
    let prompt = Prompt::Ids(vec![TokenId(1)]);
    let batch = |known: &(Rid, u64), byte: u8, last: bool| {
        let end = last.then_some(FinishReason::Length(4));
        BatchTokenIdOutput { outputs: vec![token(known.clone(), byte.into(), end)] }
    };
    for last in [false, true] {
        let mut stream = manager.generate_request(request(RequestEndpoint::Generate, prompt.clone())).await.unwrap();
        let dead = manager.epoch();
        let known = sent(&mut queue, dead).await;
        let lost = manager.detokenize(batch(&known, smile[0], last), dead);
        assert_eq!(lost.outputs.len(), 1, "it is text, and has not been received");
        assert_eq!(manager.engine_lost("a test"), (0, 1));
        assert_eq!(manager.resend(), 1);
        assert_eq!(sent(&mut queue, manager.epoch()).await, known);
        for (index, byte) in smile.iter().enumerate() {
            let late = manager.detokenize(batch(&known, *byte, true), dead);
            assert!(late.outputs.is_empty(), "nobody expects it any more");
            let news = manager.detokenize(batch(&known, *byte, index == 3), manager.epoch());
            receive(&manager, Received::BatchStr(news)).await;
        }
        let answer = stream.next().await.unwrap();
        assert_eq!((answer.text.as_bytes(), answer.output_ids.len()), (smile, 4));
        assert_eq!(answer.finish_reason, Some(FinishReason::Length(4)));
    }
}

/// Nobody reads: what waits for the engine does not become more and more, and none of it is lost.
#[tokio::test]
async fn an_engine_that_does_not_read_is_sent_no_more_than_there_are_places() {
    let (manager, mut queue) = frontend(ModelTask::Generate);
    let log = |level: usize| manager.control_place().map(|place| manager.set_engine_log(place, level.to_string()));
    assert!((0..MAX_WAITING_CONTROLS).all(|level| log(level).is_ok()));
    for refused in [log(0), manager.pause_generation(PauseMode::Abort).await, manager.flush_cache().await.map(|_| ())] {
        let SubmitError::NotServing(message) = refused.unwrap_err() else { panic!("it is a 503") };
        assert!(message.contains("64 control calls wait"), "{message}");
    }
    for level in 0..MAX_WAITING_CONTROLS {
        let ToEngine::LogFilter(sent) = queue.next(0).await.unwrap().msg else { panic!("nothing else was sent") };
        assert_eq!(sent, level.to_string());
    }
    assert!(log(0).is_ok(), "there is room again");

    let ask =
        async || manager.generate_request(request(RequestEndpoint::Generate, Prompt::Ids(vec![TokenId(1)]))).await;
    let mut refused = None;
    for _ in 0..MAX_WAITING_MESSAGES {
        refused = ask().await.err(); // a caller who leaves at once, with an abort behind the request
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(SubmitError::QueueFull(_))), "{refused:?}");
    assert!(manager.to_engine_depth() <= MAX_WAITING_MESSAGES + 1, "{}", manager.to_engine_depth());
    for _ in 0..3 {
        queue.next(0).await.unwrap();
    }
    assert!(ask().await.is_ok());
}

/// What the engine says late of a request that has left is not meant for the next one with its rid.
#[tokio::test]
async fn a_rid_that_comes_again_is_admitted_with_its_own_request() {
    let (manager, mut queue) = frontend(ModelTask::Generate);
    let rid = Rid::from_caller("again").unwrap();
    let ask = async || {
        let request = request(RequestEndpoint::Generate, Prompt::Ids(vec![TokenId(1)]));
        manager.generate_request(GenerateReqInput { rid: rid.clone(), ..request }).await.unwrap()
    };
    drop(ask().await);
    let (_, before) = sent(&mut queue, 0).await;
    queue.next(0).await.unwrap(); // its abort
    let mut stream = ask().await;
    let (_, serial) = sent(&mut queue, 0).await;
    let queued = |serial| EngineEvent::HopEntered { rid: rid.clone(), serial, hop: Hop::Queue };
    let mut admitted = Box::pin(stream.admitted());
    manager.note(Envelope::now(queued(before)));
    assert!(futures::poll!(admitted.as_mut()).is_pending(), "it is not in the queue yet");
    manager.note(Envelope::now(queued(serial)));
    admitted.await.unwrap();
}
