//! Timelines, told step by step.

use super::*;

/// Something that an engine says at `at`, after step `step` began.
fn said(at: u64, step: u64) -> Moment {
    Moment { at: MonoNanos(at), engine: None, step }
}

fn show(timeline: &Timeline) -> String {
    let hops = timeline.hops().iter().map(|record| {
        let left = record.left.map_or("..".to_owned(), |left| left.0.to_string());
        let child = if record.parent.is_some() { "  " } else { "" };
        let events = record.events.iter().map(|(at, event)| format!(" {}:{event:?}", at.0));
        let cut = if record.cut { " cut" } else { "" };
        format!("{child}{} {}-{left}{cut}{}", record.hop, record.entered.0, events.collect::<String>())
    });
    hops.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_idle_probe_and_one_that_is_stuck() {
    let mut timeline = Timeline::default();
    let at = MonoNanos;
    timeline.enter(Hop::Submit, at(0));
    timeline.leave(Hop::Submit, at(1));
    timeline.enter(Hop::IpcToEngine, at(1));
    timeline.engine_entered(Hop::Inbox, said(3, 0));
    assert_eq!(timeline.stalled_at(), Some(Hop::Inbox));
    timeline.engine_left(Hop::Inbox, said(4, 0));
    timeline.engine_entered(Hop::RunBatch, said(5, 0));
    timeline.engine_entered(Hop::Forward, said(6, 0));
    assert_eq!(timeline.stalled_at(), Some(Hop::Forward), "the innermost");
    timeline.engine_left(Hop::Forward, said(7, 0));
    timeline.engine_left(Hop::RunBatch, said(8, 0));
    assert_eq!(timeline.stalled_at(), Some(Hop::IpcToFrontend), "sent, not received");
    timeline.answered(at(8), at(9));
    expect_test::expect![[r"
        tokenizer_manager.submit 0-1
        ipc.to_engine 1-3
        scheduler.inbox 3-4
        scheduler.run_batch 5-8
          model_runner.forward 6-7
        ipc.to_frontend 8-9"]]
    .assert_eq(&show(&timeline));
}

#[test]
fn a_flight_is_always_somewhere_and_the_named_hop_is_shown() {
    let mut timeline = Timeline::default();
    assert_eq!(timeline.whereabouts(), None);
    timeline.engine_entered(Hop::ProcessInput, said(1, 0));
    timeline.engine_left(Hop::ProcessInput, said(2, 0));
    assert_eq!((timeline.stalled_at(), timeline.whereabouts()), (None, Some(Hop::Queue)));
    timeline.name_stall(Hop::Http, MonoNanos(0));
    timeline.name_stall(Hop::Queue, MonoNanos(0));
    timeline.name_stall(Hop::Queue, MonoNanos(0));
    expect_test::expect![[r"
        scheduler.process_input_requests 1-2
        scheduler.waiting_queue 2-.."]]
    .assert_eq(&show(&timeline));
}

#[test]
fn a_parked_probe_that_runs_after_all_was_not_on_its_way_back() {
    let mut timeline = Timeline::default();
    timeline.engine_entered(Hop::ReturnHealthCheckIpcs, said(1, 0));
    timeline.engine_left(Hop::ReturnHealthCheckIpcs, said(2, 0));
    timeline.engine_entered(Hop::RunBatch, said(3, 0));
    expect_test::expect![[r"
        scheduler.return_health_check_ipcs 1-2
        scheduler.run_batch 3-.."]]
    .assert_eq(&show(&timeline));
}

#[test]
fn a_retracted_request_has_one_prefill_and_one_decode() {
    let mut timeline = Timeline::default();
    timeline.engine_entered(Hop::Queue, said(1, 0));
    timeline.engine_left(Hop::Queue, said(2, 0));
    timeline.engine_entered(Hop::Prefill, said(2, 0));
    timeline.chunk(7, said(3, 1));
    timeline.retracted(MonoNanos(4));
    timeline.engine_entered(Hop::Queue, said(4, 1));
    assert!(!timeline.runs(), "it waits");
    timeline.engine_left(Hop::Queue, said(5, 1));
    timeline.engine_entered(Hop::Prefill, said(5, 1));
    assert!(timeline.runs());
    timeline.chunk(7, said(6, 2));
    timeline.engine_left(Hop::Prefill, said(7, 2));
    timeline.engine_entered(Hop::Decode, said(7, 2));
    timeline.retracted(MonoNanos(8));
    timeline.engine_entered(Hop::Queue, said(8, 3));
    timeline.engine_left(Hop::Queue, said(9, 3));
    timeline.engine_entered(Hop::Prefill, said(9, 3));
    timeline.chunk(9, said(10, 4));
    timeline.engine_left(Hop::Prefill, said(11, 4));
    timeline.engine_entered(Hop::Decode, said(11, 4));
    timeline.engine_left(Hop::Decode, said(12, 6));
    expect_test::expect![[r"
        scheduler.waiting_queue 1-2
        scheduler.prefill 2-7 3:PrefillChunk { step: 1, tokens: 7 } 4:Retraction 6:PrefillChunk { step: 2, tokens: 7 }
          scheduler.waiting_queue 4-5
        scheduler.decode 7-12 7:FirstToken 8:Retraction
          scheduler.waiting_queue 8-9
          scheduler.prefill 9-11 10:PrefillChunk { step: 4, tokens: 9 }"]]
    .assert_eq(&show(&timeline));
    let steps: Vec<_> = timeline.hops().iter().filter_map(|record| record.steps).collect();
    assert_eq!(steps, [(1, Some(2)), (3, Some(6)), (4, Some(4))]);
}

#[test]
fn a_request_that_thrashes_makes_no_endless_trace() {
    let mut timeline = Timeline::default();
    timeline.engine_entered(Hop::Prefill, said(0, 0));
    for _ in 0..200 {
        timeline.chunk(1, said(1, 1));
    }
    timeline.engine_left(Hop::Prefill, said(2, 1));
    timeline.engine_entered(Hop::Decode, said(2, 1));
    for _ in 0..1000 {
        timeline.retracted(MonoNanos(3));
        timeline.engine_entered(Hop::Queue, said(3, 1));
        timeline.engine_left(Hop::Queue, said(3, 1));
        timeline.engine_entered(Hop::Prefill, said(3, 1));
        timeline.engine_left(Hop::Prefill, said(3, 1));
        timeline.engine_entered(Hop::Decode, said(3, 1));
    }
    timeline.engine_left(Hop::Decode, said(4, 1));
    assert_eq!(timeline.hops().len(), 2 + 2 * TOLD_RETRACTIONS as usize);
    assert!(timeline.hops().iter().all(|record| record.events.len() <= MAX_EVENTS && record.left.is_some()));
    assert_eq!(timeline.hops()[0].chunks, 200, "all are counted");
}

#[test]
fn how_a_request_ends_says_what_its_open_hops_are() {
    let open = || {
        let mut timeline = Timeline::default();
        timeline.engine_entered(Hop::Decode, said(1, 0));
        timeline
    };
    let check = |outcome, want: &str| {
        let mut timeline = open();
        timeline.close(outcome, MonoNanos(5));
        assert_eq!(show(&timeline), format!("scheduler.decode 1-{want}"), "{outcome}");
    };
    check(RequestOutcome::Stop, "5 1:FirstToken");
    check(RequestOutcome::Abort, "5 1:FirstToken 5:Abort");
    check(RequestOutcome::Error, ".. 1:FirstToken");
    let mut timeline = open();
    timeline.engine_lost(MonoNanos(3));
    timeline.engine_lost(MonoNanos(4));
    timeline.resent(MonoNanos(6));
    expect_test::expect![[r"
        scheduler.decode 1-3 cut 1:FirstToken
        ipc.to_engine 3-.. 6:EngineRestart"]]
    .assert_eq(&show(&timeline));
}
