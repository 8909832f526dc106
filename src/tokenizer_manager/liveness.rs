//! `last_receive_tstamp`: when the engine last proved that it moves, and a bell for those who wait for it.

use tokio::sync::watch;

use crate::clock::MonoNanos;

/// Counts what was received. Counting, not comparing times: two equal clock readings would lose a reply.
#[derive(Debug)]
pub struct Liveness {
    last_receive_tstamp: watch::Sender<MonoNanos>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { last_receive_tstamp: watch::Sender::new(MonoNanos::now()) }
    }
}

impl Liveness {
    /// An output was received and handled.
    pub fn received(&self) {
        self.last_receive_tstamp.send_replace(MonoNanos::now());
    }

    /// When the last output was received; the start of this process before the first.
    #[must_use]
    pub fn last_receive_tstamp(&self) -> MonoNanos {
        *self.last_receive_tstamp.borrow()
    }

    /// Hears of what is received from now on. Take it before a probe is sent, so that only what comes after counts.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener { receiver: self.last_receive_tstamp.subscribe() }
    }
}

/// Waits for the next output.
#[derive(Debug)]
pub struct Listener {
    receiver: watch::Receiver<MonoNanos>,
}

impl Listener {
    /// Returns when something was received since the listener was made; never, if the frontend ends before.
    pub async fn heard(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn only_what_comes_after_counts_and_all_hear_it() {
        let liveness = Liveness::default();
        liveness.received();
        let (mut a, mut b) = (liveness.listen(), liveness.listen());
        assert!(a.heard().now_or_never().is_none(), "that was before");
        liveness.received();
        assert!(a.heard().now_or_never().is_some() && b.heard().now_or_never().is_some());
    }
}
