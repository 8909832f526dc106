//! How a drill holds a thread or a task: until the fault's time is over, or somebody switches it off.

use std::sync::PoisonError;
use std::time::Duration;

use super::{Active, Board, Drills};
use crate::clock::MonoNanos;
use crate::io_struct::Fault;

/// A fault without an end is looked at again after this time.
const LONG: Duration = Duration::from_secs(3600);

impl Drills {
    /// The fault that is on among those that `is_mine`.
    pub(super) fn find(&self, is_mine: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let board = self.board.as_ref()?;
        board.find(is_mine).map(|active| active.fault)
    }

    /// How much longer it is on; `None` if it is not.
    pub(super) fn rest(&self, is_mine: impl Fn(&Fault) -> bool) -> Option<Duration> {
        self.board.as_ref()?.rest(is_mine)
    }

    /// Holds this thread while the fault is on.
    pub(super) fn stand(&self, is_mine: impl Fn(&Fault) -> bool) {
        let Some(board) = &self.board else { return };
        while let Some(rest) = board.rest(&is_mine) {
            board.pause(rest);
        }
    }

    /// Holds this thread for `time`, or until the fault is switched off.
    pub(super) fn hold(&self, time: Duration, is_mine: impl Fn(&Fault) -> bool) {
        let Some(board) = &self.board else { return };
        let until = MonoNanos::now().after(time);
        while until > MonoNanos::now() && board.find(&is_mine).is_some() {
            board.pause(until.since(MonoNanos::now()));
        }
    }

    /// Holds this task while the fault is on.
    pub(super) async fn wait(&self, is_mine: impl Fn(&Fault) -> bool) {
        let Some(board) = &self.board else { return };
        let mut version = board.version.subscribe();
        while let Some(rest) = board.rest(&is_mine) {
            let _ = tokio::time::timeout(rest, version.changed()).await;
        }
    }

    /// Returns when the fault is on; never, without drills.
    pub(super) async fn until_on(&self, is_mine: impl Fn(&Fault) -> bool) {
        let Some(board) = &self.board else { return std::future::pending().await };
        let mut version = board.version.subscribe();
        while board.rest(&is_mine).is_none() {
            if version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns after `time`, or as soon as answers to probes are delayed no more.
    pub async fn delay(&self, time: Duration) {
        let Some(board) = &self.board else { return };
        let mut version = board.version.subscribe();
        let switched_off = async {
            while board.find(|fault| matches!(fault, Fault::DelayHealthCheckOutput { .. })).is_some() {
                let _ = version.changed().await;
            }
        };
        let _ = tokio::time::timeout(time, switched_off).await;
    }
}

impl Board {
    fn find(&self, is_mine: impl Fn(&Fault) -> bool) -> Option<Active> {
        let now = MonoNanos::now();
        self.active().iter().find(|active| active.is_on(now) && is_mine(&active.fault)).copied()
    }

    fn rest(&self, is_mine: impl Fn(&Fault) -> bool) -> Option<Duration> {
        self.find(is_mine).map(|active| active.rest(MonoNanos::now()).unwrap_or(LONG))
    }

    /// Returns after `time`, on a change, or for no reason.
    fn pause(&self, time: Duration) {
        drop(self.changed.wait_timeout(self.active(), time).unwrap_or_else(PoisonError::into_inner));
    }
}
