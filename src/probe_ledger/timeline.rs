//! The hops of one flight, in the order in which they were entered.

use crate::clock::MonoNanos;
use crate::telemetry::labels::Hop;

/// One station of a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopRecord {
    /// Which.
    pub hop: Hop,
    /// When it was entered.
    pub entered: MonoNanos,
    /// When it was left; `None` while the flight is there.
    pub left: Option<MonoNanos>,
    /// The hop that this one is a part of, as an index.
    pub parent: Option<usize>,
}

/// The hops so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    hops: Vec<HopRecord>,
}

impl Timeline {
    /// The hops so far.
    #[must_use]
    pub fn hops(&self) -> &[HopRecord] {
        &self.hops
    }

    /// The innermost hop that was entered and not left.
    #[must_use]
    pub fn stalled_at(&self) -> Option<Hop> {
        self.hops.iter().rev().find(|record| record.left.is_none()).map(|record| record.hop)
    }

    /// Where the flight is: at [`Self::stalled_at`], or on its way from the last hop that it left. `None` before the
    /// first.
    #[must_use]
    pub fn whereabouts(&self) -> Option<Hop> {
        self.stalled_at().or_else(|| {
            let last = self.hops.iter().max_by_key(|record| record.left)?;
            Some(match last.hop {
                Hop::Submit => Hop::IpcToEngine,
                Hop::IpcToEngine => Hop::Inbox,
                Hop::Inbox => Hop::ProcessInput,
                Hop::ProcessInput => Hop::Queue,
                Hop::Queue | Hop::Prefill => Hop::RunBatch,
                Hop::ReturnHealthCheckIpcs | Hop::Forward | Hop::RunBatch | Hop::Decode => Hop::IpcToFrontend,
                Hop::IpcToFrontend | Hop::Detokenizer => Hop::Receive,
                Hop::Receive | Hop::Http => Hop::Http,
            })
        })
    }

    /// The verdict names `hop`: if it is not open, it is entered where the flight was last seen, so that the trace
    /// shows what the verdict says. The root stands for [`Hop::Http`].
    pub fn name_stall(&mut self, hop: Hop, began: MonoNanos) {
        if hop != Hop::Http && self.open(hop).is_none() {
            let last_seen = self.hops.iter().map(|record| record.left.unwrap_or(record.entered)).max();
            self.enter(hop, last_seen.unwrap_or(began));
        }
    }

    /// A hop is entered.
    pub fn enter(&mut self, hop: Hop, at: MonoNanos) {
        let parent = match hop {
            Hop::Forward => self.hops.iter().rposition(|record| record.hop == Hop::RunBatch),
            _ => None,
        };
        self.hops.push(HopRecord { hop, entered: at, left: None, parent });
    }

    /// A hop is left; ignored if it is not open.
    pub fn leave(&mut self, hop: Hop, at: MonoNanos) {
        if let Some(record) = self.open(hop) {
            record.left = Some(at.max(record.entered));
        }
    }

    /// Whatever is open is left.
    pub fn leave_all(&mut self, at: MonoNanos) {
        for record in self.hops.iter_mut().filter(|record| record.left.is_none()) {
            record.left = Some(at.max(record.entered));
        }
    }

    /// The engine says that a hop is entered. What it receives has left the socket.
    pub fn engine_entered(&mut self, hop: Hop, at: MonoNanos) {
        if hop == Hop::Inbox {
            self.leave(Hop::IpcToEngine, at);
        }
        self.hops.retain(|record| record.hop != Hop::IpcToFrontend || record.left.is_some());
        self.enter(hop, at);
    }

    /// The engine says that a hop is left. A probe that leaves its last hop is on the way back.
    pub fn engine_left(&mut self, hop: Hop, at: MonoNanos) {
        self.leave(hop, at);
        if matches!(hop, Hop::ReturnHealthCheckIpcs | Hop::RunBatch) {
            self.enter(Hop::IpcToFrontend, at);
        }
    }

    /// The answer has come.
    pub fn answered(&mut self, sent_at: MonoNanos, at: MonoNanos) {
        if self.open(Hop::IpcToFrontend).is_none() {
            self.enter(Hop::IpcToFrontend, sent_at);
        }
        self.leave(Hop::IpcToFrontend, at);
    }

    fn open(&mut self, hop: Hop) -> Option<&mut HopRecord> {
        self.hops.iter_mut().rev().find(|record| record.hop == hop && record.left.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(timeline: &Timeline) -> String {
        let hops = timeline.hops().iter().map(|record| {
            let left = record.left.map_or("..".to_owned(), |left| left.0.to_string());
            let child = if record.parent.is_some() { "  " } else { "" };
            format!("{child}{} {}-{left}", record.hop, record.entered.0)
        });
        hops.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_idle_probe_and_one_that_is_stuck() {
        let mut timeline = Timeline::default();
        let at = MonoNanos;
        timeline.enter(Hop::Submit, at(0));
        timeline.leave(Hop::Submit, at(1));
        timeline.enter(Hop::IpcToEngine, at(1));
        timeline.engine_entered(Hop::Inbox, at(3));
        assert_eq!(timeline.stalled_at(), Some(Hop::Inbox));
        timeline.engine_left(Hop::Inbox, at(4));
        timeline.engine_entered(Hop::RunBatch, at(5));
        timeline.engine_entered(Hop::Forward, at(6));
        assert_eq!(timeline.stalled_at(), Some(Hop::Forward), "the innermost");
        timeline.engine_left(Hop::Forward, at(7));
        timeline.engine_left(Hop::RunBatch, at(8));
        assert_eq!(timeline.stalled_at(), Some(Hop::IpcToFrontend), "sent, not received");
        timeline.answered(at(8), at(9));
        expect_test::expect![[r"
            tokenizer_manager.submit 0-1
            ipc.to_engine 1-3
            scheduler.inbox 3-4
            scheduler.run_batch 5-8
              model_runner.forward 6-7
            ipc.to_frontend 8-9"]]
        .assert_eq(&show(&timeline));
    }

    #[test]
    fn a_flight_is_always_somewhere_and_the_named_hop_is_shown() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.whereabouts(), None);
        timeline.engine_entered(Hop::ProcessInput, MonoNanos(1));
        timeline.engine_left(Hop::ProcessInput, MonoNanos(2));
        assert_eq!((timeline.stalled_at(), timeline.whereabouts()), (None, Some(Hop::Queue)));
        timeline.name_stall(Hop::Http, MonoNanos(0));
        timeline.name_stall(Hop::Queue, MonoNanos(0));
        timeline.name_stall(Hop::Queue, MonoNanos(0));
        expect_test::expect![[r"
            scheduler.process_input_requests 1-2
            scheduler.waiting_queue 2-.."]]
        .assert_eq(&show(&timeline));
    }

    #[test]
    fn a_parked_probe_that_runs_after_all_was_not_on_its_way_back() {
        let mut timeline = Timeline::default();
        timeline.engine_entered(Hop::ReturnHealthCheckIpcs, MonoNanos(1));
        timeline.engine_left(Hop::ReturnHealthCheckIpcs, MonoNanos(2));
        timeline.engine_entered(Hop::RunBatch, MonoNanos(3));
        expect_test::expect![[r"
            scheduler.return_health_check_ipcs 1-2
            scheduler.run_batch 3-.."]]
        .assert_eq(&show(&timeline));
    }
}
