//! How many cores this process may use.

use std::collections::BTreeSet;
use std::path::Path;

use procfs::process::Process;

/// Cores of this machine on which this process may run, each counted once however many threads it runs at a time: two
/// that share a vector unit are no faster than one, and slower when one of them waits for the other.
///
/// Where the system does not tell, the number of its processors.
#[must_use]
pub fn physical_cores() -> usize {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match allowed() {
        // A quota of the container is in the number of processors alone.
        Some(allowed) => distinct(Path::new("/sys/devices/system/cpu"), &allowed).map_or(all, |cores| cores.min(all)),
        None => all,
    }
}

/// Numbers of the processors that this process may use.
fn allowed() -> Option<Vec<u32>> {
    let ranges = Process::myself().ok()?.status().ok()?.cpus_allowed_list?;
    Some(ranges.into_iter().flat_map(|(first, last)| first..=last).collect())
}

/// How many different cores these processors belong to. `None` if one of them does not say.
fn distinct(cpus: &Path, processors: &[u32]) -> Option<usize> {
    let core = |processor: &u32| {
        let siblings = cpus.join(format!("cpu{processor}/topology/thread_siblings_list"));
        std::fs::read_to_string(siblings).ok()
    };
    let cores = processors.iter().map(core).collect::<Option<BTreeSet<_>>>()?;
    (!cores.is_empty()).then_some(cores.len())
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
        assert_eq!(distinct(folder.path(), &[0, 1, 2, 3]), Some(2));
        assert_eq!(distinct(folder.path(), &[0, 2]), Some(1));
        assert_eq!(distinct(folder.path(), &[3]), Some(1));
        assert_eq!(distinct(folder.path(), &[4]), None, "it is not there");
        assert_eq!(distinct(folder.path(), &[]), None);
    }

    #[test]
    fn this_machine_has_at_least_one() {
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert!((1..=all).contains(&physical_cores()));
    }
}
