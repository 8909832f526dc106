//! What is refused on arrival.

use super::bench::{ROOMY, bench, expected, request};
use crate::io_struct::FinishReason;
use crate::scheduler::*;

#[test]
fn places_and_queue_are_limited() {
    let mut bench = bench(SchedulerConfig { max_running_requests: 1, max_queued_requests: 1, ..ROOMY });
    let six = (0..6).map(|i| request(&format!("r{i}"), &[i + 1], 2)).collect();
    bench.run(six);
    for i in 0..6 {
        let rid = format!("r{i}");
        let last = bench.outputs(&rid).pop().unwrap().finish_reason.unwrap();
        if i < 2 {
            assert_eq!(bench.text(&rid), expected(&[i + 1], 2));
        } else {
            assert!(matches!(last, FinishReason::Abort { kind: AbortKind::QueueFull, .. }), "{rid}: {last:?}");
        }
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let mut bench = bench(SchedulerConfig { max_total_tokens: 64, ..ROOMY });
    bench.run(vec![request("a", &[1; 60], 5), request("b", &[1; 60], 4)]);
    let reason = bench.outputs("a").pop().unwrap().finish_reason;
    assert!(matches!(reason, Some(FinishReason::Abort { kind: AbortKind::TooLarge, .. })), "{reason:?}");
    assert_eq!(bench.text("b"), expected(&[1; 60], 4));
}
