//! What the kernel says of a process: of this one under the names that Prometheus dashboards expect, and of the engine's,
//! which cannot be asked while it hangs.

use std::sync::OnceLock;

use procfs::process::{LimitValue, Process, Stat};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Error, Registry};

use super::vitals::signs::{Sign, count, descs};

/// One process at one instant; all zero if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessStats {
    /// User and system CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Unix time of its start in seconds.
    pub started_at: f64,
}

impl ProcessStats {
    /// Of process `pid`, from `/proc`, which never waits for it. `None` if it has ended, or if `pid` is not a process of
    /// this program, as it may be when the engine lives in another pid namespace.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let stat = process.stat().ok()?;
        (stat.comm == own()?.stat().ok()?.comm).then(|| Self::read(&process, &stat))
    }

    fn read(process: &Process, stat: &Stat) -> Self {
        let ticks_per_second = procfs::ticks_per_second() as f64;
        Self {
            cpu_seconds: (stat.utime + stat.stime) as f64 / ticks_per_second,
            resident_bytes: stat.rss * procfs::page_size(),
            virtual_bytes: stat.vsize,
            threads: u64::try_from(stat.num_threads).unwrap_or_default(),
            open_fds: process.fd_count().unwrap_or_default() as u64,
            started_at: boot_time() + stat.starttime as f64 / ticks_per_second,
        }
    }
}

/// Unix time of the boot. Read once: the kernel tells it anew, a second more or less, when its clock is set, and a start
/// that moves would look like a restart.
fn boot_time() -> f64 {
    static BOOT_TIME: OnceLock<u64> = OnceLock::new();
    *BOOT_TIME.get_or_init(|| procfs::boot_time_secs().unwrap_or_default()) as f64
}

fn own() -> Option<Process> {
    Process::myself().ok()
}

/// This process, and how many file descriptors it may open.
struct Own {
    stats: ProcessStats,
    max_fds: u64,
}

impl Own {
    fn read() -> Option<Self> {
        let process = own()?;
        let max_fds = match process.limits().ok()?.max_open_files.soft_limit {
            LimitValue::Value(limit) => limit,
            LimitValue::Unlimited => u64::MAX,
        };
        Some(Self { stats: ProcessStats::read(&process, &process.stat().ok()?), max_fds })
    }
}

const SIGNS: &[Sign<Own>] = &[
    Sign {
        name: "process_cpu_seconds_total",
        help: "User and system CPU time of the frontend; the engine is another process.",
        kind: MetricType::COUNTER,
        read: |own| own.stats.cpu_seconds,
    },
    Sign {
        name: "process_resident_memory_bytes",
        help: "Resident memory of the frontend; the engine is another process.",
        kind: MetricType::GAUGE,
        read: |own| count(own.stats.resident_bytes),
    },
    Sign {
        name: "process_virtual_memory_bytes",
        help: "Address space of the frontend. Says little about memory in use.",
        kind: MetricType::GAUGE,
        read: |own| count(own.stats.virtual_bytes),
    },
    Sign {
        name: "process_threads",
        help: "Threads of the frontend.",
        kind: MetricType::GAUGE,
        read: |own| count(own.stats.threads),
    },
    Sign {
        name: "process_open_fds",
        help: "File descriptors that the frontend has open: about one for each connection.",
        kind: MetricType::GAUGE,
        read: |own| count(own.stats.open_fds),
    },
    Sign {
        name: "process_max_fds",
        help: "File descriptors that the frontend may open. process_open_fds near it: no more connections are taken.",
        kind: MetricType::GAUGE,
        read: |own| count(own.max_fds),
    },
    Sign {
        name: "process_start_time_seconds",
        help: "Unix time at which the frontend started. A change is a restart.",
        kind: MetricType::GAUGE,
        read: |own| own.stats.started_at,
    },
];

/// Declares the series of this process.
///
/// # Errors
/// A name is declared twice.
pub(super) fn register(registry: &Registry) -> Result<(), Error> {
    registry.register(Box::new(OwnProcess { descs: descs(SIGNS)? }))
}

struct OwnProcess {
    descs: Vec<Desc>,
}

impl Collector for OwnProcess {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(own) = Own::read() else { return Vec::new() };
        SIGNS.iter().map(|sign| sign.family(&own)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "compares with the wall clock")]
    fn a_process_is_known_by_its_pid_and_by_its_name() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let myself = ProcessStats::of(std::process::id()).unwrap();
        let started = myself.started_at;
        assert!(started <= now + 2.0 && started > now - 24.0 * 3600.0, "started {started}, now {now}");
        assert!(myself.resident_bytes > 100_000 && myself.virtual_bytes > myself.resident_bytes, "{myself:?}");
        assert!(myself.threads >= 1 && myself.open_fds >= 3, "{myself:?}");
        assert_eq!(ProcessStats::of(u32::MAX), None, "no process");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(ProcessStats::of(other.id()), None, "a process of another program");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn this_process_may_open_more_than_it_has_open() {
        let own = Own::read().unwrap();
        assert!(own.max_fds > own.stats.open_fds, "{} {}", own.max_fds, own.stats.open_fds);
    }
}
