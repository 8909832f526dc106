//! Flies cases, one after the other, on one server for as long as it lives.

use std::time::{Duration, Instant};

use radiosonde::io_struct::Fault;
use radiosonde::telemetry::labels::ProbeOutcome;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::case::{Breakage, Case, Load};
use crate::oracle::{Truth, truth};
use crate::support::probe::Answer;
use crate::support::process_tree::is_stopped;
use crate::support::rig::Rig;
use crate::support::{eventually, is_running};

const ARGS: [&str; 6] = [
    "--model=scripted:step_ms=20",
    "--health-check-timeout=600ms",
    "--chunked-prefill-size=16",
    "--max-running-requests=8",
    "--max-queued-requests=4",
    "--drain-timeout=1s",
];
const MOMENT: Duration = Duration::from_secs(20);

/// What is promised: a verdict by the limit and so much, and a dead engine within so much.
const DETECTION_MS: f64 = 200.0;
const DEATH_MS: f64 = 500.0;

/// A case that went well.
pub struct Flown {
    /// The verdict.
    pub story: String,
    /// By how much the verdict was later than its limit.
    pub late_by_ms: Option<f64>,
    /// The server does not outlive it.
    pub deadly: bool,
}

/// One server at a time, and what it goes through.
#[derive(Default)]
pub struct Pilot {
    rig: Option<Rig>,
}

impl Pilot {
    /// Flies `case` and compares what comes of it with the truth.
    pub async fn fly(&mut self, case: &Case) -> Flown {
        match case.load {
            Load::Starting => fly_starting(case).await,
            Load::Draining => fly_draining(case).await,
            _ => self.fly_serving(case).await,
        }
    }

    async fn fly_serving(&mut self, case: &Case) -> Flown {
        let rig = match self.rig.take() {
            Some(rig) => rig,
            None => Rig::start(&ARGS).await,
        };
        let work = load(&rig, case.load).await;
        let answer = match case.breakage {
            Breakage::FrontendStopped | Breakage::FrontendBlocked => stand(&rig, case).await,
            Breakage::EngineKilledUnderWay(signal) => kill(&rig, signal).await,
            _ => {
                break_it(&rig, case.breakage).await;
                ask(&rig, case).await
            }
        };
        let flown = check(case, &answer);
        if flown.deadly {
            assert!(work.await.unwrap().iter().all(|status| *status != Some(200)), "nobody can have been served");
            buried(rig).await;
        } else {
            mend(&rig, case.breakage).await;
            work.abort();
            rig.back_at_rest().await;
            self.rig = Some(rig);
        }
        flown
    }
}

type Work = tokio::task::JoinHandle<Vec<Option<u16>>>;

async fn load(rig: &Rig, load: Load) -> Work {
    let (work, busy) = match load {
        Load::Idle | Load::Starting => (rig.requests(0, 0, 0), (0, 0)),
        Load::Prefill => (rig.requests(1, 8000, 1), (1, 0)),
        Load::Decode | Load::Draining => (rig.requests(8, 1, 4000), (8, 0)),
        Load::QueueFull => (rig.requests(12, 1, 4000), (8, 4)),
    };
    rig.busy_with(busy.0, busy.1).await;
    if load == Load::QueueFull {
        let more = json!({"input_ids": [65], "sampling_params": {"max_new_tokens": 1}});
        assert_eq!(rig.post("/generate", &more).await, 503, "the queue is full");
    }
    work
}

async fn break_it(rig: &Rig, breakage: Breakage) {
    match breakage {
        Breakage::Drill(Fault::SchedulerPanic) => rig.scheduler_panics().await,
        Breakage::Drill(fault) => rig.fault(&json!(fault)).await,
        Breakage::EngineSignal(signal) => {
            let engine = rig.server.engine_pid();
            let pid = Pid::from_raw(i32::try_from(engine).unwrap()).unwrap();
            // More than once: Rust's own handler of SIGSEGV takes the first for a fault that comes again, as a real one.
            eventually(MOMENT, async || {
                kill_process(pid, signal).ok();
                if signal == Signal::STOP { is_stopped(engine) } else { !is_running(engine) }
            })
            .await;
        }
        Breakage::Pause(mode) => assert_eq!(rig.post("/pause_generation", &json!({"mode": mode})).await, 200),
        Breakage::Nothing
        | Breakage::FrontendStopped
        | Breakage::FrontendBlocked
        | Breakage::EngineKilledUnderWay(_) => {}
    }
}

async fn mend(rig: &Rig, breakage: Breakage) {
    match breakage {
        Breakage::EngineSignal(_) => rig.server.signal_engine(Signal::CONT),
        Breakage::Pause(_) => assert_eq!(rig.post("/continue_generation", &json!({})).await, 200),
        _ => rig.end_faults().await,
    }
}

/// A sick server gets time to fall ill: what was on its way already may still prove life to a probe.
async fn ask(rig: &Rig, case: &Case) -> Answer {
    match truth(case) {
        Truth::Sick(..) => rig.failing_probe(case.probe.path).await,
        _ => rig.probe(case.probe.path).await,
    }
}

/// The frontend stands while a probe is under way, which an engine without batches keeps there.
async fn stand(rig: &Rig, case: &Case) -> Answer {
    const STANDS: Duration = Duration::from_millis(1500);
    rig.fault(&json!(Fault::NoBatches { seconds: Duration::from_secs(60) })).await;
    rig.failing_probe(case.probe.path).await; // nothing is on its way any more
    let before = rig.page().await;
    let stand = async {
        eventually(MOMENT, async || rig.page().await.contains("\nradiosonde_health_probes_in_flight 1\n")).await;
        if case.breakage == Breakage::FrontendStopped {
            rig.server.signal(Signal::STOP);
            tokio::time::sleep(STANDS).await; // this is how long the fault lasts
            rig.server.signal(Signal::CONT);
        } else {
            rig.fault(&json!(Fault::FrontendBlocked { seconds: STANDS })).await;
        }
    };
    let (answer, ()) = tokio::join!(rig.bare_probe(case.probe.path), stand);
    rig.agree(&before, &answer).await;
    answer
}

/// The engine dies with a probe under way, which a slow step keeps there.
async fn kill(rig: &Rig, signal: Signal) -> Answer {
    rig.fault(&json!(Fault::SlowSteps { ms: Duration::from_secs(60) })).await;
    rig.failing_probe("/health").await; // the slow step has begun
    let before = rig.page().await;
    let kill = async {
        eventually(MOMENT, async || rig.page().await.contains("\nradiosonde_health_probes_in_flight 1\n")).await;
        rig.server.signal_engine(signal);
        Instant::now()
    };
    let probe = async { (rig.bare_probe("/health_generate?evidence=own").await, Instant::now()) };
    let ((answer, answered), killed) = tokio::join!(probe, kill);
    let took = answered.saturating_duration_since(killed).as_secs_f64() * 1e3;
    assert!(took <= DEATH_MS, "the death is known after {took} ms: {}", answer.body);
    rig.agree(&before, &answer).await;
    answer
}

/// Compares the answer with the truth.
fn check(case: &Case, answer: &Answer) -> Flown {
    let body = &answer.body;
    let seen = (answer.status, body["outcome"].as_str().unwrap(), body["status"].as_str().unwrap());
    let late_by_ms = answer.late_by_ms();
    let (mut in_time, mut deadly) = (true, false);
    match truth(case) {
        Truth::Healthy => assert_eq!(seen, (200, "ok", "up"), "{body}"),
        Truth::Paused => assert_eq!(seen, (200, "paused", "up"), "{body}"),
        Truth::NotServing(outcome) => assert_eq!(seen, (503, outcome.as_str(), outcome.as_str()), "{body}"),
        Truth::Sick(outcome, hops, cause) => {
            assert_eq!(seen, (503, outcome.as_str(), "unhealthy"), "{body}");
            assert_eq!(body["cause"], cause.as_str(), "{body}");
            let hop = body["stalled_at"].as_str().unwrap();
            assert!(hops.is_empty() || hops.iter().any(|known| known.as_str() == hop), "{hops:?}: {body}");
            deadly = outcome == ProbeOutcome::EngineDead;
            in_time = !matches!(case.breakage, Breakage::FrontendStopped | Breakage::FrontendBlocked);
        }
    }
    assert!(!in_time || late_by_ms <= DETECTION_MS, "the verdict is late: {body}");
    Flown { story: answer.story(), late_by_ms: in_time.then_some(late_by_ms), deadly }
}

/// A server whose engine is dead ends, with an error.
async fn buried(mut rig: Rig) {
    rig.server.signal(Signal::TERM); // it would stay a while to be asked
    let code = rig.server.wait_exit(MOMENT).await.code();
    assert_eq!(code, Some(1), "{}", rig.server.log());
}

async fn fly_starting(case: &Case) -> Flown {
    let rig = Rig::start_unready(&[&ARGS[..], &["--fault=slow_load:seconds=60"]].concat()).await;
    eventually(MOMENT, async || rig.server.log().contains("frontend connected")).await;
    break_it(&rig, case.breakage).await;
    check(case, &rig.probe(case.probe.path).await)
}

async fn fly_draining(case: &Case) -> Flown {
    let mut rig = Rig::start(&ARGS).await;
    let work = load(&rig, Load::Draining).await;
    break_it(&rig, case.breakage).await;
    rig.server.signal(Signal::TERM);
    eventually(MOMENT, async || rig.page().await.contains("\nradiosonde_server_status{status=\"draining\"} 1\n")).await;
    let flown = check(case, &rig.probe(case.probe.path).await);
    assert_eq!(rig.server.wait_exit(MOMENT).await.code(), Some(0), "{}", rig.server.log());
    work.await.unwrap();
    flown
}
