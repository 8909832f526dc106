//! Requests that are given up leave nothing behind.

use super::bench::{ROOMY, abort, bench, expected, probe, request};
use crate::scheduler::*;

#[test]
fn aborts_and_lost_workers_leave_nothing_behind() {
    let mut bench = bench(SchedulerConfig { max_running_requests: 1, ..ROOMY });
    let rid = |text| Rid::from_caller(text).unwrap();
    let (_, input) = probe();
    bench.step(vec![vec![request("running", &[1; 20], 9), request("waiting", &[1], 9), input]]);
    bench.step(vec![vec![abort(&rid("running")), abort(&rid("waiting")), abort(&rid("never seen"))]]);
    assert!(bench.is_clean());
    let (_, input) = probe();
    bench.step(vec![vec![request("a", &[1; 20], 9), request("b", &[1], 9), input]]);
    bench.step(vec![vec![SchedulerInput::WorkerGone(HttpWorkerIpc::new("w"))]]);
    assert!(bench.is_clean());
}

#[test]
fn an_abort_means_one_life_of_a_rid() {
    let mut bench = bench(ROOMY);
    let SchedulerInput::Message(worker, mut second) = request("a", &[1], 3) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut second.msg {
        input.serial = 1;
    }
    let late = abort(&Rid::from_caller("a").unwrap());
    bench.run(vec![SchedulerInput::Message(worker, second), late]);
    assert_eq!((bench.text("a"), bench.outputs("a")[0].serial), (expected(&[1], 3), 1));
}
