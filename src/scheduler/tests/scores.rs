//! Logprobs of prompts, place by place.

use super::bench::{Bench, ROOMY, bench, expected, next, request};
use crate::io_struct::LogprobsWanted;
use crate::scheduler::*;

fn scored(rid: &str, prompt: &[u32], max_new_tokens: u32, from: u32) -> SchedulerInput {
    let SchedulerInput::Message(worker, mut envelope) = request(rid, prompt, max_new_tokens) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut envelope.msg {
        input.logprobs = Some(LogprobsWanted { top: 1, token_ids: Vec::new(), input_from: Some(from) });
    }
    SchedulerInput::Message(worker, envelope)
}

/// The tokens behind `from`, and what `SumRunner` would have said in their places.
fn check_scores(bench: &Bench, rid: &str, prompt: &[u32], from: usize) {
    let outputs = bench.outputs(rid);
    let told: Vec<_> = outputs.iter().map(|output| output.input_logprobs.len()).collect();
    assert_eq!(
        (told[0], told[1..].iter().sum::<usize>()),
        (prompt.len() - 1 - from, 0),
        "{rid}: with the first output"
    );
    for (entry, place) in outputs[0].input_logprobs.iter().zip(from + 1..) {
        assert_eq!(entry.token.0, prompt[place], "{rid} {place}");
        assert_eq!(entry.top[0].0.0, next(&prompt[..place]), "{rid} {place}");
    }
}

#[test]
fn prompts_are_scored_place_by_place_in_the_same_steps() {
    let mut bench = bench(ROOMY);
    let prompt: Vec<u32> = (1..=10).collect();
    bench.run(vec![scored("a", &prompt, 2, 2)]);
    check_scores(&bench, "a", &prompt, 2);
    assert_eq!(bench.text("a"), expected(&prompt, 2), "the output is what it is without");
    assert_eq!(*bench.log.lock().unwrap(), [vec![2, 1, 1, 1, 1, 1, 1], vec![1, 1], vec![1]]);
    bench.run(vec![scored("none", &prompt, 0, 0), scored("last", &prompt, 1, 9)]);
    check_scores(&bench, "none", &prompt, 0);
    check_scores(&bench, "last", &prompt, 9);
    assert!(bench.is_clean());
}

#[test]
fn a_step_scores_a_bounded_number_of_places() {
    let mut bench = bench(SchedulerConfig { chunked_prefill_size: 1000, ..ROOMY });
    let prompt: Vec<u32> = (0..150).map(|token| token % 90).collect();
    bench.run(vec![scored("a", &prompt, 1, 0), scored("b", &prompt, 1, 0), request("c", &prompt, 1)]);
    for rid in ["a", "b"] {
        check_scores(&bench, rid, &prompt, 0);
    }
    let rows = |slices: &Vec<usize>| slices.iter().filter(|tokens| **tokens == 1).count();
    assert!(bench.log.lock().unwrap().iter().all(|slices| rows(slices) <= 64));
    assert!(bench.log.lock().unwrap()[0].contains(&150), "others are not held up");
}

#[test]
fn a_retracted_request_scores_its_prompt_once() {
    let mut retractions = 0;
    for pages in 5..12 {
        let mut bench = bench(SchedulerConfig { max_total_tokens: pages * PAGE_SIZE, ..ROOMY });
        let prompt: Vec<u32> = (1..=30).collect();
        bench.run(vec![request("old", &[1], 40), scored("a", &prompt, 20, 0), scored("b", &prompt, 20, 3)]);
        for (rid, from) in [("a", 0), ("b", 3)] {
            check_scores(&bench, rid, &prompt, from);
            assert_eq!(bench.text(rid), expected(&prompt, 20));
            retractions += bench.outputs(rid).pop().unwrap().num_retractions;
        }
        assert!(bench.is_clean());
    }
    assert!(retractions > 0, "the pools are small enough");
}
