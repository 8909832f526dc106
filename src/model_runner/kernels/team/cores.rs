//! The cores that this process may use.

use std::collections::BTreeMap;
use std::path::Path;

use procfs::process::Process;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Cores of this machine on which this process may run, each counted once however many threads it runs at a time: two
/// that share a vector unit are no faster than one, and slower when one of them waits for the other.
///
/// Where the system does not tell, the number of its processors.
#[must_use]
pub fn physical_cores() -> usize {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match allowed() {
        // A quota of the container is in the number of processors alone.
        Some(allowed) => distinct(Path::new(CPUS), &allowed).map_or(all, |cores| cores.len().min(all)),
        None => all,
    }
}

/// A processor of each of these cores; empty where the system does not tell.
#[must_use]
pub fn one_of_each() -> Vec<u32> {
    allowed().and_then(|allowed| distinct(Path::new(CPUS), &allowed)).unwrap_or_default()
}

/// Keeps the calling thread on one processor. Only a wish: a system that refuses leaves it where it is.
pub fn stay_on(processor: u32) {
    let mut only = CpuSet::new();
    if (processor as usize) < CpuSet::MAX_CPU {
        only.set(processor as usize);
        let _ = sched_setaffinity(None, &only);
    }
}

/// Where Linux describes its processors.
const CPUS: &str = "/sys/devices/system/cpu";

/// Numbers of the processors that this process may use.
fn allowed() -> Option<Vec<u32>> {
    let ranges = Process::myself().ok()?.status().ok()?.cpus_allowed_list?;
    Some(ranges.into_iter().flat_map(|(first, last)| first..=last).collect())
}

/// The first of these processors on each core. `None` if one of them does not say where it is.
fn distinct(cpus: &Path, processors: &[u32]) -> Option<Vec<u32>> {
    let core = |processor: &u32| {
        let siblings = cpus.join(format!("cpu{processor}/topology/thread_siblings_list"));
        Some((std::fs::read_to_string(siblings).ok()?, *processor))
    };
    // Of several on one core the last that comes stays: so the first of them.
    let cores = processors.iter().rev().map(core).collect::<Option<BTreeMap<_, _>>>()?;
    let mut first: Vec<u32> = cores.into_values().collect();
    first.sort_unstable();
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_one_core() {
        let folder = tempfile::tempdir().expect("a place for files");
        for (processor, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let topology = folder.path().join(format!("cpu{processor}/topology"));
            std::fs::create_dir_all(&topology).expect("a folder");
            std::fs::write(topology.join("thread_siblings_list"), siblings).expect("a file");
        }
        assert_eq!(distinct(folder.path(), &[0, 1, 2, 3]), Some(vec![0, 1]));
        assert_eq!(distinct(folder.path(), &[0, 2]), Some(vec![0]));
        assert_eq!(distinct(folder.path(), &[3]), Some(vec![3]));
        assert_eq!(distinct(folder.path(), &[4]), None, "it is not there");
        assert_eq!(distinct(folder.path(), &[]), None);
    }

    #[test]
    fn a_thread_stays() {
        let processor = *one_of_each().first().expect("a core");
        let stays = std::thread::spawn(move || {
            stay_on(processor);
            rustix::thread::sched_getcpu()
        });
        assert_eq!(stays.join().expect("no panic"), processor as usize);
        stay_on(u32::MAX);
    }

    #[test]
    fn this_machine_has_at_least_one() {
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert!((1..=all).contains(&physical_cores()));
    }
}
