//! `abort_request`: ends requests because somebody asks for it, here at once and in the engine as soon as it hears.

use super::TokenizerManager;
use super::receive::aborted;
use crate::io_struct::{AbortKind, Rid};
use crate::telemetry::labels::RequestOutcome;

/// What the requests that are ended say.
const MESSAGE: &str = "aborted on request";

/// Whom an abort means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortTarget<'a> {
    /// Every request of a user.
    All,
    /// The requests of the call with this rid: the one that bears it, or those that are numbered after it.
    Call(&'a str),
}

impl AbortTarget<'_> {
    fn means(self, rid: &Rid) -> bool {
        match self {
            Self::All => true,
            Self::Call(call) => rid.as_str().strip_prefix(call).is_some_and(is_number),
        }
    }
}

/// Is `tail` what prompts and samples of one call are numbered with: nothing, `-0`, `-0-1`, ..?
fn is_number(tail: &str) -> bool {
    let mut parts = tail.split('-');
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some("") && parts.all(is_digits)
}

impl TokenizerManager {
    /// Ends requests with the finish reason abort; returns how many. Whatever the engine does, their callers hear so now.
    #[must_use]
    pub fn abort_request(&self, target: AbortTarget<'_>) -> usize {
        let taken = self.inner.table.take_served(|rid| target.means(rid));
        for (rid, entry) in &taken {
            self.send_abort(rid, entry.serial);
            self.end(rid, entry, RequestOutcome::Abort);
            entry.state.push(aborted(MESSAGE.to_owned(), AbortKind::Requested, entry));
        }
        taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rid_means_its_own_call_and_no_other() {
        let check = |call: &str, rid: &str, want: bool| {
            let rid = Rid::from_caller(rid).unwrap();
            assert_eq!(AbortTarget::Call(call).means(&rid), want, "{call} {rid}");
            assert!(AbortTarget::All.means(&rid));
        };
        check("r", "r", true);
        check("r", "r-0", true);
        check("r", "r-12-3", true);
        check("r-1", "r-1", true);
        check("r", "r1", false);
        check("r", "r-x", false);
        check("r", "r-", false);
        check("r", "r-1-", false);
        check("r-1", "r-12", false);
        check("r-1", "r", false);
    }
}
