//! A campaign of random faults: under random load, random probes must name each hop and cause, and leave nothing.
//!
//! `RADIOSONDE_FAULTS=1000` asks for more than the default, `RADIOSONDE_SEED=7` for other ones. The same seed gives the
//! same faults in the same order; a failure prints it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail as the test does")]

#[path = "fault_campaign/case.rs"]
mod case;
#[path = "fault_campaign/oracle.rs"]
mod oracle;
#[path = "fault_campaign/pilot.rs"]
mod pilot;
#[path = "it"]
#[expect(dead_code, reason = "shared with tests/it; each binary uses its part")]
mod it {
    pub mod support;
}

use std::collections::BTreeMap;
use std::thread;

use case::Case;
use it::support;
use pilot::{Flown, Pilot};

/// Servers that are broken at the same time. They mostly wait, so there may be more of them than cores.
const PILOTS: usize = 4;

#[test]
fn every_fault_has_a_name() {
    let (seed, faults) = (number("RADIOSONDE_SEED", 1), number("RADIOSONDE_FAULTS", 200));
    let pilots = (0..PILOTS as u64).map(|first| thread::spawn(move || fly(seed, first, faults)));
    let pilots: Vec<_> = pilots.collect();
    let flown: Vec<Flown> = pilots.into_iter().flat_map(|pilot| pilot.join().unwrap()).collect();
    report(seed, &flown);
}

/// Every [`PILOTS`]th case from `first` on.
fn fly(seed: u64, first: u64, faults: u64) -> Vec<Flown> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut pilot = Pilot::default();
    let cases = (first..faults).step_by(PILOTS).map(|number| {
        let case = Case::draw(seed, number);
        let _context = Context(format!("RADIOSONDE_SEED={seed}, fault {number}: {case:?}"));
        runtime.block_on(pilot.fly(&case))
    });
    cases.collect()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

/// Printed if what it stands for fails.
struct Context(String);

impl Drop for Context {
    #[expect(clippy::print_stderr, reason = "a failure must say how to have it again")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn report(seed: u64, flown: &[Flown]) {
    let mut stories = BTreeMap::new();
    for flight in flown {
        *stories.entry(flight.story.as_str()).or_insert(0) += 1;
    }
    let latest = flown.iter().filter_map(|flight| flight.late_by_ms).fold(0.0, f64::max);
    println!("seed {seed}: {} faults; latest verdict {latest:.0} ms after its limit", flown.len());
    for (story, count) in stories {
        println!("{count:5} {story}");
    }
}
