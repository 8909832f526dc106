//! Who goes first, and who never waits for ever.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;
use crate::io_struct::{FinishReason, ToEngine};
use crate::scheduler::tests::{Bench, ROOMY, bench, expected, request};
use crate::scheduler::{SchedulerConfig, SchedulerInput, Turn};

const ONE_PLACE: SchedulerConfig = SchedulerConfig { max_running_requests: 1, max_queued_requests: 300, ..ROOMY };

const BY_PRIORITY: SchedulerConfig = SchedulerConfig {
    priorities: Priorities::On { first: FirstPriority::High, preemption_threshold: 10 },
    ..ONE_PLACE
};

fn with_priority(rid: &str, prompt: &[u32], len: u32, priority: Option<i64>) -> SchedulerInput {
    let SchedulerInput::Message(worker, mut envelope) = request(rid, prompt, len) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut envelope.msg {
        input.priority = priority;
    }
    SchedulerInput::Message(worker, envelope)
}

/// The requests in the order in which they got their first token.
fn order(bench: &Bench) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for rid in bench.news() {
        if !order.contains(&rid) {
            order.push(rid);
        }
    }
    order
}

fn ranks(priorities: Priorities, given: &[Option<i64>]) -> Vec<usize> {
    let mut ranks: Vec<_> =
        (0..).zip(given).map(|(arrival, priority)| Rank::new(Purpose::Serve, *priority, arrival, priorities)).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|rank| rank.arrival as usize).collect()
}

#[test]
fn ranks_are_by_priority_and_then_by_arrival() {
    let given = [Some(0), Some(5), None, Some(-5), Some(5), Some(i64::MIN), Some(i64::MAX)];
    let on = |first| Priorities::On { first, preemption_threshold: 0 };
    assert_eq!(ranks(Priorities::Off, &given), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(ranks(on(FirstPriority::High), &given), [6, 1, 4, 0, 3, 2, 5]);
    assert_eq!(ranks(on(FirstPriority::Low), &given), [5, 3, 0, 1, 4, 6, 2]);
}

#[test]
fn first_come_first_served_and_the_longest_prefix_match() {
    let known = [8; 40];
    let requests = || {
        vec![
            request("new", &[1; 40], 1),
            request("newer", &[2; 40], 1),
            request("half", &known[..20], 1),
            request("known", &known, 1),
        ]
    };
    let check = |policy, want: [&str; 4]| {
        let mut bench = bench(SchedulerConfig { policy, ..ONE_PLACE });
        bench.run(vec![request("before", &known, 1)]);
        bench.run(requests());
        assert_eq!(order(&bench)[1..], want, "{policy:?}");
    };
    check(SchedulePolicy::Fcfs, ["new", "newer", "half", "known"]);
    check(SchedulePolicy::Lpm, ["known", "half", "new", "newer"]);
}

#[test]
fn a_long_queue_is_served_in_order() {
    let check = |waiting: u32, first: &str| {
        let mut bench = bench(SchedulerConfig { policy: SchedulePolicy::Lpm, ..ONE_PLACE });
        bench.run(vec![request("before", &[8; 40], 1)]);
        let mut all: Vec<_> = (1..waiting).map(|i| request(&format!("r{i}"), &[i], 1)).collect();
        all.push(request("known", &[8; 40], 1));
        bench.run(all);
        assert_eq!(order(&bench)[1], first, "{waiting} wait");
    };
    check(128, "known");
    check(129, "r1");
}

#[test]
fn higher_priorities_go_first() {
    let mut bench = bench(BY_PRIORITY);
    let given = [("none", None), ("low", Some(-3)), ("high", Some(7)), ("also high", Some(7)), ("middle", Some(0))];
    bench.run(given.map(|(rid, priority)| with_priority(rid, &[1; 20], 2, priority)).into());
    assert_eq!(order(&bench), ["high", "also high", "middle", "low", "none"]);
    assert!(given.iter().all(|(rid, _)| bench.text(rid) == expected(&[1; 20], 2)));
}

#[test]
fn a_place_is_taken_only_by_who_is_far_ahead() {
    let check = |priority, preempts: bool| {
        let mut bench = bench(BY_PRIORITY);
        bench.step(vec![vec![with_priority("low", &[1; 20], 30, Some(0))]]);
        for _ in 0..5 {
            bench.step(vec![]);
        }
        bench.run(vec![with_priority("other", &[2; 20], 3, Some(priority))]);
        let retracted = bench.outputs("low").last().unwrap().num_retractions;
        assert_eq!(retracted, u32::from(preempts), "priority {priority}");
        assert_eq!(bench.finished()[0], if preempts { "other" } else { "low" });
        assert_eq!(bench.text("low"), expected(&[1; 20], 30), "nothing is lost");
        assert_eq!(bench.text("other"), expected(&[2; 20], 3));
        assert_eq!(bench.scheduler.vitals.heartbeat(0, 0).preemptions, u64::from(preempts));
        assert_eq!(bench.scheduler.vitals.heartbeat(0, 0).retractions, 0, "the pool was large enough");
    };
    check(10, false);
    check(11, true);
}

#[test]
fn pages_are_taken_only_if_they_are_enough() {
    let small = SchedulerConfig { max_running_requests: 4, max_total_tokens: 96, ..BY_PRIORITY };
    let check = |len, preempted: [u32; 2]| {
        let mut bench = bench(small);
        bench.step(vec![vec![
            with_priority("first", &[1; 33], 30, Some(50)),
            with_priority("low", &[2; 17], 3, Some(0)),
        ]]);
        bench.run(vec![with_priority("urgent", &vec![3; len], 1, Some(55))]);
        let retracted = ["first", "low"].map(|rid| bench.outputs(rid).last().unwrap().num_retractions);
        assert_eq!(retracted, preempted, "{len} tokens");
    };
    check(30, [0, 1]);
    check(60, [0, 0]); // those of the low one would not do, so it runs to its end
}

#[test]
fn a_full_queue_has_a_place_for_who_weighs_more() {
    let mut bench = bench(SchedulerConfig { max_queued_requests: 2, ..BY_PRIORITY });
    bench.step(vec![vec![with_priority("runs", &[1; 20], 9, Some(9))]]);
    let four = [("a", Some(1)), ("b", Some(2)), ("c", Some(1)), ("d", Some(3))];
    bench.run(four.map(|(rid, priority)| with_priority(rid, &[2; 20], 1, priority)).into());
    let refused = |rid: &str| {
        matches!(
            bench.outputs(rid).last().unwrap().finish_reason,
            Some(FinishReason::Abort { kind: AbortKind::QueueFull, .. })
        )
    };
    assert_eq!(["runs", "a", "b", "c", "d"].map(refused), [false, true, false, true, false]);
}

/// Whoever has waited for `n` others that came before is next: new arrivals do not matter, nor does the pool.
#[test]
fn nobody_starves() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let config =
            SchedulerConfig { max_running_requests: 3, max_total_tokens: 192, max_queued_requests: 1000, ..ROOMY };
        let mut bench = bench(config);
        let mut turns = 0;
        let mut stream = 0;
        bench.step(vec![vec![request("large", &[1; 150], 20)]]);
        while bench.outputs("large").last().is_none_or(|output| output.finish_reason.is_none()) {
            let small = (0..random.random_range(0..3)).map(|_| {
                stream += 1;
                request(&format!("s{stream}"), &[*[2, 3, 4].choose(&mut random).unwrap(); 20], 5)
            });
            assert_eq!(bench.step(vec![small.collect()]), Turn::Worked);
            turns += 1;
            assert!(turns < 60, "seed {seed}: 19 chunks and 20 tokens take no more turns, whoever comes later");
        }
    }
}
