//! A pause holds what runs and loses nothing.

use super::bench::{ROOMY, bench, expected, message, probe, request};
use crate::io_struct::{FinishReason, PauseMode};
use crate::scheduler::*;

#[test]
fn a_pause_holds_batches_and_loses_nothing() {
    for (mode, running, waiting) in [(PauseMode::InPlace, 2, 1), (PauseMode::Retract, 0, 3)] {
        let mut bench = bench(ROOMY);
        bench.step(vec![vec![request("a", &[1, 2], 6), request("b", &[3; 12], 4)]]);
        let turn = bench.step(vec![vec![message(ToEngine::Pause(mode)), request("late", &[5], 3)]]);
        assert_eq!((turn, bench.step(vec![])), (Turn::Paused, Turn::Paused));
        assert_eq!((bench.scheduler.running.len(), bench.scheduler.waiting.len()), (running, waiting), "{mode:?}");
        bench.run(vec![message(ToEngine::Continue)]);
        assert_eq!(bench.text("a"), expected(&[1, 2], 6), "{mode:?}");
        assert_eq!(bench.text("b"), expected(&[3; 12], 4), "{mode:?}");
        assert_eq!(bench.text("late"), expected(&[5], 3), "{mode:?}");
        assert!(bench.is_clean());
    }
}

#[test]
fn a_pause_may_end_what_it_finds_but_no_probe() {
    let mut bench = bench(ROOMY);
    bench.step(vec![vec![request("a", &[1, 2], 6)]]);
    let (rid, input) = probe();
    bench.step(vec![vec![request("b", &[3], 4), input, message(ToEngine::Pause(PauseMode::Abort))]]);
    for request in ["a", "b"] {
        let last = bench.outputs(request).pop().unwrap().finish_reason;
        assert!(matches!(last, Some(FinishReason::Abort { kind: AbortKind::Requested, .. })), "{request}: {last:?}");
    }
    assert!(bench.outputs(rid.as_str()).is_empty() && bench.vouched().is_empty());
    bench.run(vec![message(ToEngine::Continue)]);
    assert_eq!(bench.outputs(rid.as_str()).len(), 1, "it runs after all");
    assert!(bench.is_clean());
}
