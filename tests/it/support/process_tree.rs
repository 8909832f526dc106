//! Who was started by whom, as `/proc` tells it.

use std::fs;

/// The child of `frontend` that was started as an engine.
pub fn engine_of(frontend: u32) -> Option<u32> {
    children(frontend).into_iter().find(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == b"engine")
    })
}

/// Everything that `pid` has started, and what that has started.
pub fn descendants(pid: u32) -> Vec<u32> {
    children(pid).into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Does `pid` exist, and not only as a zombie?
pub fn is_running(pid: u32) -> bool {
    parent_of(pid).is_some()
}

/// Is `pid` stopped by a signal?
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// The second field after the name in `/proc/<pid>/stat`; the name may itself hold parentheses. A zombie is nobody's.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if fields.next()? == "Z" { None } else { fields.next()?.parse().ok() }
}
