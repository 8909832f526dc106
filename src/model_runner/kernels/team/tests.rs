//! Tests of `team`.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn every_item_is_done_once() {
    for threads in [1, 2, 5] {
        let team = Team::new(threads);
        assert_eq!(team.threads(), threads);
        let mut counts = vec![0u32; 1000];
        for _ in 0..500 {
            team.for_each(WORTH_SHARING, counts.iter_mut(), |count| *count += 1);
        }
        assert_eq!(counts, [500; 1000]);
    }
}

#[test]
fn small_work_stays_here() {
    let team = Team::new(2);
    let here = thread::current().id();
    team.for_each(WORTH_SHARING - 1, 0..100, |_| assert_eq!(thread::current().id(), here));
}

#[test]
fn members_take_part() {
    let team = Team::new(2);
    let here = thread::current().id();
    let helped = AtomicBool::new(false);
    // The caller's items last until the other thread has had one.
    team.for_each(WORTH_SHARING, 0..2, |_| {
        if thread::current().id() == here {
            while !helped.load(SeqCst) {
                hint::spin_loop();
            }
        }
        helped.store(true, SeqCst);
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_goes_on() {
    let team = Team::new(3);
    for _ in 0..20 {
        let job = || team.for_each(WORTH_SHARING, 0..64, |item| assert!(item != 40, "the job's own words"));
        let panic = catch_unwind(AssertUnwindSafe(job)).expect_err("one item fails");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the job's own words"));
        let sum = AtomicU64::new(0);
        team.for_each(WORTH_SHARING, 0..100, |item| {
            sum.fetch_add(item, SeqCst);
        });
        assert_eq!(sum.into_inner(), 4950);
    }
}

#[test]
fn idle_members_sleep_and_wake() {
    let team = Team::new(3);
    let wait_until_asleep = || {
        let began = Instant::now();
        while !team.shared.asleep.iter().all(|asleep| asleep.load(SeqCst)) {
            assert!(began.elapsed() < Duration::from_secs(20), "a member without work does not sleep");
            thread::yield_now();
        }
    };
    for _ in 0..50 {
        wait_until_asleep();
        let mut counts = [0; 64];
        team.for_each(WORTH_SHARING, counts.iter_mut(), |count| *count += 1);
        assert_eq!(counts, [1; 64]);
    }
}
