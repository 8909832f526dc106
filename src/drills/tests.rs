//! The hooks, without processes.

use super::*;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn without_drills_nothing_goes_in() {
    let drills = Drills::default();
    drills.switch_on(Fault::SchedulerPanic);
    drills.before_turn();
    assert!(drills.on().is_empty() && !drills.is_enabled());
}

#[test]
fn a_fault_is_on_until_it_is_switched_off_and_there_is_one_of_a_kind() {
    let drills = Drills::enabled(&[Fault::NoBatches { seconds: seconds(60.0) }]);
    assert!(drills.forbids_batches() && !drills.withholds_kv());
    drills.switch_on(Fault::NoBatches { seconds: seconds(90.0) });
    drills.switch_on(Fault::DropHealthCheckOutput);
    assert_eq!(drills.on().len(), 2);
    assert_eq!(drills.health_check_output(), Passage::Lost);
    drills.switch_off();
    assert!(!drills.forbids_batches() && drills.on().is_empty());
    assert_eq!(drills.health_check_output(), Passage::Free);
}

#[test]
fn a_thread_that_stands_goes_on_when_the_fault_is_switched_off() {
    let drills = Drills::enabled(&[Fault::LoopFrozen { seconds: seconds(3600.0) }]);
    let frozen = std::thread::spawn({
        let drills = drills.clone();
        move || drills.before_turn()
    });
    drills.switch_off();
    frozen.join().unwrap();
}

#[tokio::test]
async fn a_task_waits_for_the_fault_to_end() {
    let drills = Drills::enabled(&[Fault::EngineStopsReading { seconds: seconds(0.05) }]);
    drills.before_engine_reads().await;
    assert!(drills.on().is_empty());
    drills.before_frontend_reads().await;
}

#[test]
#[should_panic(expected = "scheduler_panic")]
fn the_scheduler_panics() {
    Drills::enabled(&[Fault::SchedulerPanic]).before_turn();
}
