//! The spans: their names, their attributes and one function for each thing that can be said with them.

pub mod names;
mod server;
mod caller;
mod hops;
mod stream;
mod outcome;

pub use caller::{CallAttributes, Caller, EmbeddingCall, record_call, record_caller, record_embedding_call};
pub use hops::{HopEvent, HopSpan, RequestLink, StepAttributes, write_hops};
pub use outcome::{ProbeAttributes, RequestAttributes, record_probe, record_request};
pub use server::{context, end, name_probe, name_request, record_status, self_probe_span, server_span, trace_id};
pub use stream::StreamSpan;

/// The longest attribute or status text in bytes. Prompts and outputs never go into spans.
pub const MAX_TEXT: usize = 512;

/// The head of `text`, at most `limit` bytes, cut between characters.
pub(super) fn bounded(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, limit, want) in [("abc", 5, "abc"), ("abc", 2, "ab"), ("a\u{e9}b", 2, "a"), ("\u{e9}", 1, "")] {
            assert_eq!(bounded(text, limit), want, "{text:?} at {limit}");
        }
    }
}
