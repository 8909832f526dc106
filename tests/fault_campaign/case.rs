//! What is tried: a load, something that breaks, and a probe, drawn from a seed.

use std::time::Duration;

use radiosonde::io_struct::{Fault, PauseMode};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

/// One try.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What the server does meanwhile.
    pub load: Load,
    /// What breaks.
    pub breakage: Breakage,
    /// How it is probed.
    pub probe: Kind,
}

/// What the server does when something breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Nothing.
    Idle,
    /// One prompt of many chunks: no output for a long time.
    Prefill,
    /// Eight streams.
    Decode,
    /// Eight streams, and as many requests in the queue as it takes.
    QueueFull,
    /// It loads.
    Starting,
    /// It was asked to end, with eight streams.
    Draining,
}

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakage {
    /// Nothing does.
    Nothing,
    /// A drill.
    Drill(Fault),
    /// A signal to the engine.
    EngineSignal(Signal),
    /// A signal that kills the engine with a probe under way.
    EngineKilledUnderWay(Signal),
    /// The frontend is stopped for a while, with a probe under way.
    FrontendStopped,
    /// The frontend's runtime is blocked for a while, with a probe under way.
    FrontendBlocked,
    /// Generation is paused.
    Pause(PauseMode),
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Path and query.
    pub path: &'static str,
    /// Only its own answer counts.
    pub own: bool,
}

const KINDS: [Kind; 6] = [
    Kind { path: "/health", own: false },
    Kind { path: "/health_generate", own: false },
    Kind { path: "/health?evidence=own", own: true },
    Kind { path: "/health_generate?evidence=own", own: true },
    Kind { path: "/health?timeout=250ms", own: false },
    Kind { path: "/health_generate?timeout=250ms&evidence=own", own: true },
];

/// Longer than any probe waits; ended by the test.
const LONG: Duration = Duration::from_secs(60);

/// Longer than any probe waits; ends by itself, since nobody can tell the engine.
const SHORT: Duration = Duration::from_millis(1500);

impl Case {
    /// The case with this number of the campaign with this seed.
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number));
        let mut pick = |all: &[Breakage]| *all.choose(&mut random).unwrap();
        let (drill, harmless) = (pick(&drills()), pick(&HARMLESS));
        let (death, pause) = (pick(&DEATHS), pick(&PAUSES));
        let rare = pick(&[Breakage::FrontendStopped, Breakage::FrontendBlocked]);
        let load = *[Load::Idle, Load::Prefill, Load::Decode, Load::QueueFull].choose(&mut random).unwrap();
        let probe = *KINDS.choose(&mut random).unwrap();
        match random.random_range(0..100) {
            0..3 => Self { load: Load::Starting, breakage: harmless, probe },
            3..6 => Self { load: Load::Draining, breakage: harmless, probe },
            6..14 => Self { load, breakage: death, probe },
            14..18 => Self { load, breakage: Breakage::EngineSignal(Signal::STOP), probe },
            18..23 => Self { load, breakage: rare, probe: KINDS[0] },
            23..28 => Self { load, breakage: pause, probe },
            28..30 => Self { load, breakage: Breakage::Nothing, probe },
            _ => Self { load, breakage: drill, probe },
        }
    }
}

/// What does not change the answer of a server that starts or ends.
const HARMLESS: [Breakage; 4] = [
    Breakage::Nothing,
    Breakage::EngineSignal(Signal::STOP),
    Breakage::Drill(Fault::LoopFrozen { seconds: LONG }),
    Breakage::Drill(Fault::FrontendStopsReading { seconds: LONG }),
];

const DEATHS: [Breakage; 6] = [
    Breakage::EngineKilledUnderWay(Signal::KILL),
    Breakage::EngineKilledUnderWay(Signal::ABORT),
    Breakage::Drill(Fault::SchedulerPanic),
    Breakage::EngineSignal(Signal::KILL),
    Breakage::EngineSignal(Signal::SEGV),
    Breakage::EngineSignal(Signal::ABORT),
];

const PAUSES: [Breakage; 3] =
    [Breakage::Pause(PauseMode::Abort), Breakage::Pause(PauseMode::Retract), Breakage::Pause(PauseMode::InPlace)];

/// What leaves both processes alive.
fn drills() -> Vec<Breakage> {
    let ms = Duration::from_millis;
    let faults = [
        Fault::LoopFrozen { seconds: LONG },
        Fault::NoBatches { seconds: LONG },
        Fault::OutOfKv { seconds: LONG },
        Fault::SlowSteps { ms: ms(5000) },
        Fault::SlowSteps { ms: ms(60) },
        Fault::FailStep { nth: 1 },
        Fault::DropHealthCheckOutput,
        Fault::DelayHealthCheckOutput { ms: ms(5000) },
        Fault::DelayHealthCheckOutput { ms: ms(60) },
        Fault::EngineStopsReading { seconds: SHORT },
        Fault::FrontendStopsReading { seconds: LONG },
        Fault::DetokenizerStuck { seconds: LONG },
    ];
    faults.map(Breakage::Drill).into()
}
