//! What the kernel says of the engine's process: known at once, where a missing heartbeat takes its time to tell.

use procfs::process::{Process, Stat};

/// Whether `pid` is stopped (SIGSTOP, a debugger). False if the kernel does not say so, or if `pid` is not a process of
/// this program, as it may be when the engine lives in another pid namespace.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = |process: Process| process.stat().ok();
    let theirs = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()).and_then(stat);
    let own = Process::myself().ok().and_then(stat);
    theirs.zip(own).is_some_and(|(Stat { comm, state, .. }, own)| matches!(state, 'T' | 't') && comm == own.comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_program_counts() {
        assert!(!is_stopped(std::process::id()), "it runs");
        assert!(!is_stopped(u32::MAX), "there is none");
    }
}
