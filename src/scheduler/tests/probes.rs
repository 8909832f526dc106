//! Probes: who runs, who is vouched for, and by what.

use super::bench::{ROOMY, abort, bench, bench_with, expected, probe, request};
use crate::io_struct::FinishReason;
use crate::scheduler::*;

#[test]
fn an_idle_scheduler_runs_the_probe() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    assert_eq!(bench.step(vec![vec![input]]), Turn::Worked);
    assert_eq!(bench.branches(), [ProbeBranch::Idle]);
    assert_eq!(bench.text(rid.as_str()).len(), 1);
    assert!(bench.vouched().is_empty() && bench.is_clean());
}

#[test]
fn a_busy_scheduler_vouches_after_the_batch() {
    let mut bench = bench(ROOMY);
    bench.step(vec![vec![request("a", &[1; 24], 1)]]);
    let (rid, input) = probe();
    assert_eq!(bench.step(vec![vec![input]]), Turn::Worked);
    assert_eq!(bench.branches(), [ProbeBranch::Busy]);
    assert_eq!(bench.vouched(), [rid], "each prefill chunk is a batch result");
    let step_ended =
        bench.sent.0.iter().rposition(|(_, msg)| matches!(msg, FromEngine::Event(EngineEvent::StepEnded(_))));
    let vouched =
        bench.sent.0.iter().position(|(_, msg)| matches!(msg, FromEngine::Output(EngineOutput::HealthCheck(_))));
    assert!(step_ended < vouched, "vouched for before the device moved");
}

#[test]
fn a_probe_that_arrives_during_a_batch_is_vouched_for_by_its_result() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    bench.step(vec![vec![request("a", &[1; 24], 1)], vec![input]]);
    assert_eq!(bench.vouched(), [rid]);
}

#[test]
fn of_many_probes_one_runs_and_all_are_answered() {
    let mut bench = bench(ROOMY);
    let (rids, inputs): (Vec<Rid>, Vec<SchedulerInput>) = (0..200).map(|_| probe()).unzip();
    bench.run(inputs);
    assert_eq!(bench.branches().iter().filter(|branch| **branch == ProbeBranch::Idle).count(), 1);
    assert_eq!(bench.text(rids[0].as_str()).len(), 1);
    assert_eq!(bench.vouched(), rids[1..]);
    assert!(bench.is_clean());
}

#[test]
fn a_failed_step_vouches_for_nobody() {
    let mut bench = bench_with(ROOMY, true);
    let (rid, input) = probe();
    bench.step(vec![vec![request("a", &[1; 24], 1), request("b", &[1], 1), input]]);
    assert!(bench.vouched().is_empty());
    bench.run(vec![]);
    assert!(bench.vouched().is_empty());
    for rid in ["a", "b", rid.as_str()] {
        let reason = bench.outputs(rid).pop().unwrap().finish_reason;
        assert!(matches!(reason, Some(FinishReason::Abort { kind: AbortKind::StepFailed, .. })), "{rid}: {reason:?}");
    }
    assert!(bench.is_clean());
}

#[test]
fn a_probe_whose_wait_has_lost_its_object_runs_itself() {
    let mut bench = bench(ROOMY);
    let (first, input) = probe();
    let (second, other) = probe();
    let arrivals = vec![request("a", &[1; 24], 1), input, other, abort(&Rid::from_caller("a").unwrap())];
    bench.run(arrivals);
    assert_eq!(bench.text(first.as_str()).len(), 1);
    assert_eq!(bench.vouched(), [second]);
    assert!(bench.is_clean());
}

#[test]
fn an_abort_of_a_probe_is_not_a_probe() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    bench.scheduler.process_input_requests(vec![request("a", &[1; 24], 1), input], &mut bench.sent);
    assert_eq!(bench.scheduler.return_health_check_ipcs.len(), 1);
    bench.scheduler.process_input_requests(vec![abort(&rid)], &mut bench.sent);
    assert!(bench.scheduler.return_health_check_ipcs.is_empty());
}

#[test]
fn a_users_rid_may_look_like_a_probe() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1; 24], 4), request("HEALTH_CHECK_mine", &[5], 2)]);
    assert_eq!(bench.text("HEALTH_CHECK_mine"), expected(&[5], 2));
}

#[test]
fn a_probe_that_no_batch_takes_is_in_the_queue_and_users_keep_their_places() {
    let mut bench = bench(ROOMY);
    let no_batches = crate::io_struct::Fault::NoBatches { seconds: Duration::from_secs(60) };
    bench.scheduler.drills = Drills::enabled(&[no_batches]);
    let (rid, input) = probe();
    assert_eq!((bench.step(vec![vec![input]]), bench.step(vec![])), (Turn::Blocked, Turn::Blocked));
    let queued = bench.sent.0.iter().filter(|(_, msg)| {
        matches!(msg, FromEngine::Event(EngineEvent::HopEntered { rid: whose, hop: Hop::Queue, .. }) if *whose == rid)
    });
    assert_eq!(queued.count(), 1);
    bench.step(vec![(0..9).map(|i| request(&i.to_string(), &[1], 1)).collect()]);
    assert_eq!(bench.outputs("8").len(), 1, "four have a place and four wait; the ninth is refused");
    assert!((0..8).all(|i| bench.outputs(&i.to_string()).is_empty()), "a probe takes nobody's place");
    bench.scheduler.drills.switch_off();
    bench.run(vec![]);
    assert!(bench.is_clean());
}
