//! Batches: chunks beside decodes, how outputs end, and what a full pool does.

use super::bench::{ROOMY, bench, expected, request};
use crate::io_struct::{FinishReason, TokenId};
use crate::scheduler::*;

#[test]
fn long_prompts_run_in_chunks_beside_decodes() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1], 4), request("b", &[2; 20], 2)]);
    assert_eq!(bench.text("a"), expected(&[1], 4));
    assert_eq!(bench.text("b"), expected(&[2; 20], 2));
    assert_eq!(*bench.log.lock().unwrap(), [vec![1, 7], vec![1, 8], vec![1, 5], vec![1, 1]]);
    assert!(bench.is_clean());
}

#[test]
fn the_last_output_names_the_reason_and_the_counts() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1, 2], 3), request("none", &[1, 2, 3], 0)]);
    let last = bench.outputs("a").pop().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Length(3)));
    assert_eq!((last.prompt_tokens, last.completion_tokens), (2, 3));
    let none = bench.outputs("none");
    assert_eq!((none.len(), none[0].finish_reason.clone()), (1, Some(FinishReason::Length(0))));
    assert!(bench.is_clean());
}

#[test]
fn a_stop_token_ends_the_output_and_is_not_shown() {
    let mut bench = bench(ROOMY);
    let SchedulerInput::Message(worker, mut envelope) = request("a", &[90], 9) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut envelope.msg {
        input.input_ids = vec![TokenId(99)]; // says 99 at once, the model's own stop token
        input.sampling_params.ignore_eos = false;
    }
    bench.run(vec![SchedulerInput::Message(worker, envelope)]);
    let only = bench.outputs("a").pop().unwrap();
    assert_eq!(only.finish_reason, Some(FinishReason::StopToken(TokenId(99))));
    assert_eq!((only.output_ids.len(), only.completion_tokens), (0, 1));
}

#[test]
fn a_full_pool_retracts_the_youngest_and_loses_nothing() {
    let mut bench = bench(SchedulerConfig { max_total_tokens: 96, ..ROOMY });
    bench.run((0..4).map(|i| request(&format!("r{i}"), &[i + 1; 10], 40)).collect());
    for i in 0..4 {
        assert_eq!(bench.text(&format!("r{i}")), expected(&[i + 1; 10], 40), "r{i}");
    }
    let retracted: u32 = (0..4).map(|i| bench.outputs(&format!("r{i}")).pop().unwrap().num_retractions).sum();
    assert!(retracted > 0, "the pool was meant to be too small");
    assert_eq!(bench.outputs("r0").pop().unwrap().num_retractions, 0, "the oldest always runs on");
    assert!(bench.is_clean());
}
