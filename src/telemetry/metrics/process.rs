//! The frontend's own process: start, CPU time and memory, under the names that Prometheus dashboards expect.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, MetricFamily, MetricType};
use prometheus::{Error, PullingGauge, Registry};
use rustix::time::{ClockId, clock_gettime};

/// Ticks a second in `/proc`: `USER_HZ`, which Linux keeps at 100 towards programs on every architecture we build for.
const USER_HZ: f64 = 100.0;

/// Declares the series.
///
/// # Errors
/// A name is declared twice.
pub fn register(registry: &Registry) -> Result<(), Error> {
    let started = start_time().unwrap_or_default();
    let start = PullingGauge::new(
        "process_start_time_seconds",
        "Unix time at which the frontend started. A change is a restart.",
        Box::new(move || started),
    )?;
    let memory = PullingGauge::new(
        "process_resident_memory_bytes",
        "Resident memory of the frontend; the engine is another process.",
        Box::new(|| resident_bytes().unwrap_or_default()),
    )?;
    let cpu = PullingGauge::new(
        "process_cpu_seconds_total",
        "User and system CPU time of the frontend; the engine is another process.",
        Box::new(cpu_seconds),
    )?;
    registry.register(Box::new(start))?;
    registry.register(Box::new(memory))?;
    registry.register(Box::new(AsCounter(cpu)))
}

/// A pulled value that only rises.
struct AsCounter(PullingGauge);

impl Collector for AsCounter {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.collect();
        for family in &mut families {
            family.set_field_type(MetricType::COUNTER);
            for metric in family.mut_metric() {
                let mut counter = Counter::default();
                counter.set_value(metric.get_gauge().get_value());
                metric.set_counter(counter);
            }
        }
        families
    }
}

/// Boot time (`btime` of `/proc/stat`, seconds) plus the start in ticks since boot (field 22 of `/proc/self/stat`, see
/// proc_pid_stat(5)).
fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the command in parentheses and may hold spaces; the third follows its last parenthesis.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / USER_HZ)
}

/// `VmRSS` of `/proc/self/status`, there in KiB.
fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = rss.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "compares with the wall clock")]
    fn the_process_knows_itself() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = start_time().unwrap();
        assert!(started <= now + 2.0 && started > now - 24.0 * 3600.0, "started {started}, now {now}");
        assert!(resident_bytes().unwrap() > 100_000.0);
        assert!(cpu_seconds() > 0.0);
    }
}
