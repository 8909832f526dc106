//! What the kernel says of the engine's process: known at once, where a missing heartbeat takes its time to tell.

use std::fs;

/// Whether `pid` is stopped (SIGSTOP, a debugger). False if the kernel does not say so, or if `pid` is not a process of
/// this program, as it may be when the engine lives in another pid namespace.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    match (name_and_state(&stat(&pid.to_string())), name_and_state(&stat("self"))) {
        (Some((name, 'T' | 't')), Some((own, _))) => name == own,
        _ => false,
    }
}

/// `12 (radiosonde) T ..`; the name may itself hold parentheses.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (before, after) = stat.rsplit_once(") ")?;
    Some((before.split_once('(')?.1, after.chars().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(name_and_state("12 (radiosonde) T 1 12"), Some(("radiosonde", 'T')));
        assert_eq!(name_and_state("12 (a) S (b) R 1"), Some(("a) S (b", 'R')));
        assert_eq!(name_and_state(""), None);
        assert!(!is_stopped(std::process::id()), "it runs");
    }
}
