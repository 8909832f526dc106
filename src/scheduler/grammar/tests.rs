//! Outputs that follow a grammar, beside others, through retraction and chunks.

use super::*;
use crate::io_struct::{AbortKind, Grammar, GrammarSyntax, PauseMode, ToEngine};
use crate::scheduler::SchedulerConfig;
use crate::scheduler::SchedulerInput;
use crate::scheduler::tests::{Bench, ROOMY, bench as plain_bench, expected, message, request};
use crate::structured::tests::following;
use crate::telemetry::labels::GrammarField;

fn grammar_bench(config: SchedulerConfig) -> Bench {
    let Bench { scheduler, log, sent } = plain_bench(config);
    let workers = GrammarWorkers::start(|| Ok(following())).unwrap();
    Bench { scheduler: scheduler.with_grammars(workers), log, sent }
}

/// A request whose output follows the regular expression `regex`; tokens are bytes.
fn follows(rid: &str, prompt: &[u32], max_new_tokens: u32, regex: &str) -> SchedulerInput {
    let mut input = request(rid, prompt, max_new_tokens);
    if let SchedulerInput::Message(_, envelope) = &mut input
        && let ToEngine::Generate(request) = &mut envelope.msg
    {
        let (field, syntax) = (GrammarField::Regex, GrammarSyntax::Regex);
        request.sampling_params.grammar = Some(Grammar { field, syntax, text: regex.into() });
    }
    input
}

fn end(bench: &Bench, rid: &str) -> FinishReason {
    bench.outputs(rid).pop().unwrap().finish_reason.unwrap()
}

fn is_number(text: &[u32], len: usize) -> bool {
    text.len() == len && text.iter().all(|token| (48..58).contains(token))
}

#[test]
fn a_grammar_holds_for_its_request_alone_and_ends_it() {
    let mut bench = grammar_bench(ROOMY);
    let free = request("free", &[1; 20], 9);
    bench.run(vec![free, follows("a", &[2; 20], 40, "[0-9]{12}"), follows("b", &[3], 5, "[0-9]+")]);
    assert_eq!(bench.text("free"), expected(&[1; 20], 9));
    assert!(is_number(&bench.text("a"), 12) && is_number(&bench.text("b"), 5));
    assert_eq!((end(&bench, "a"), end(&bench, "b")), (FinishReason::Grammar, FinishReason::Length(5)));
    assert!(bench.is_clean());
}

#[test]
fn a_retracted_request_goes_on_where_its_grammar_was() {
    let mut bench = grammar_bench(SchedulerConfig { max_total_tokens: 96, ..ROOMY });
    let ask = |i: u32| follows(&format!("r{i}"), &[i + 1; 10], 60, "[0-9]{20}(ab){10}");
    let pause = message(ToEngine::Pause(PauseMode::InPlace));
    bench.step(vec![[pause].into_iter().chain((0..4).map(ask)).collect()]);
    for request in &mut bench.scheduler.waiting {
        request.await_mask(); // so that all four run together
    }
    bench.run(vec![message(ToEngine::Continue)]);
    let retracted: u32 = (0..4).map(|i| bench.outputs(&format!("r{i}")).pop().unwrap().num_retractions).sum();
    assert!(retracted > 0, "the pool was meant to be too small");
    for rid in ["r0", "r1", "r2", "r3"] {
        let text = bench.text(rid);
        assert!(is_number(&text[..20], 20) && text[20..] == [97, 98].repeat(10), "{text:?}");
        assert_eq!(end(&bench, rid), FinishReason::Grammar);
    }
    assert!(bench.is_clean());
}

#[test]
fn a_grammar_that_fails_ends_its_request_and_no_other() {
    let mut bench = grammar_bench(ROOMY);
    bench.run(vec![request("free", &[1], 5), follows("bad", &[2], 5, "("), follows("good", &[3], 5, "[0-9]{3}")]);
    assert_eq!(bench.text("free"), expected(&[1], 5));
    assert!(is_number(&bench.text("good"), 3));
    assert!(matches!(end(&bench, "bad"), FinishReason::Abort { kind: AbortKind::Grammar(GrammarField::Regex), .. }));
    let mut without = plain_bench(ROOMY);
    without.run(vec![follows("a", &[2], 5, "a")]);
    assert!(matches!(end(&without, "a"), FinishReason::Abort { kind: AbortKind::Grammar(GrammarField::Regex), .. }));
    assert!(bench.is_clean() && without.is_clean());
}
