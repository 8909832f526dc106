//! Who is live: rid to the state that its waiter watches.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::request::{RequestState, Usage};
use crate::clock::MonoNanos;
use crate::io_struct::{Purpose, Rid, ToEngine};
use crate::telemetry::labels::RequestEndpoint;
use crate::telemetry::metrics::InFlight;

/// The most live requests of one frontend, probes included.
pub const MAX_LIVE_REQUESTS: usize = 8192;

/// A live request.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What its waiter watches.
    pub state: Arc<RequestState>,
    /// What the engine was told to know it by, beside its rid.
    pub serial: u64,
    /// Why it exists.
    pub purpose: Purpose,
    /// Which API it came by; `None` for a probe.
    pub endpoint: Option<RequestEndpoint>,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// When it was submitted.
    pub submitted: MonoNanos,
    /// Set when the scheduler has taken it in; counts it as in flight.
    pub admitted: Option<Arc<InFlight>>,
    /// When the scheduler took it in, until it has its first place in a batch.
    pub queued: Option<MonoNanos>,
    /// When its newest token came, and the counts so far.
    pub newest: Option<(MonoNanos, Usage)>,
    /// What the engine was sent, kept as long as nothing has come back: another engine can be sent it again.
    pub input: Option<Arc<ToEngine>>,
    /// The engine that it was sent to.
    pub epoch: Epoch,
    /// How many engines it was sent to.
    pub sends: u32,
}

/// A request that two engines have died with is not given to a third: it may be what kills them.
const MAX_SENDS: u32 = 2;

/// Counts engines: 0 is the first, each restart makes a new one.
pub type Epoch = u64;

/// Why a request cannot be entered.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// A live request has this rid.
    Duplicate,
    /// [`MAX_LIVE_REQUESTS`].
    Full,
}

/// The live requests.
#[derive(Debug, Default)]
pub struct RequestTable {
    live: Mutex<HashMap<Rid, Entry>>,
    epoch: AtomicU64,
    serial: AtomicU64,
}

impl RequestTable {
    /// The present engine.
    pub fn epoch(&self) -> Epoch {
        self.epoch.load(Relaxed)
    }

    /// A number that no request before it had.
    pub fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Relaxed)
    }

    /// Enters a request for the present engine; `send` is called with it before any other engine can be the present
    /// one.
    pub fn insert(&self, rid: &Rid, mut entry: Entry, send: impl FnOnce(Epoch)) -> Result<(), Refused> {
        let mut live = self.live();
        (entry.epoch, entry.sends) = (self.epoch(), 1);
        if live.len() >= MAX_LIVE_REQUESTS {
            return Err(Refused::Full);
        }
        match live.entry(rid.clone()) {
            MapEntry::Occupied(_) => Err(Refused::Duplicate),
            MapEntry::Vacant(place) => {
                send(entry.epoch);
                place.insert(entry);
                Ok(())
            }
        }
    }

    /// Changes the request that had this rid when the engine was sent `serial`, if it still lives, and gives a copy of it.
    pub fn update_sent(&self, rid: &Rid, serial: u64, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
        let mut live = self.live();
        let entry = live.get_mut(rid).filter(|entry| entry.serial == serial)?;
        change(entry);
        Some(entry.clone())
    }

    /// Takes the request out that had this rid when the engine was sent `serial`, if it still lives.
    pub fn remove(&self, rid: &Rid, serial: u64) -> Option<Entry> {
        self.remove_if(rid, |entry| entry.serial == serial)
    }

    /// Takes a probe out; no other has its rid.
    pub fn remove_probe(&self, rid: &Rid) -> Option<Entry> {
        self.remove_if(rid, |entry| entry.purpose != Purpose::Serve)
    }

    fn remove_if(&self, rid: &Rid, is_it: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        match self.live().entry(rid.clone()) {
            MapEntry::Occupied(place) if is_it(place.get()) => Some(place.remove()),
            MapEntry::Occupied(_) | MapEntry::Vacant(_) => None,
        }
    }

    /// The present engine is gone. Takes out what is not given to another one: probes, requests that have output
    /// already, and those that have had their second chance.
    pub fn end_epoch(&self) -> Vec<(Rid, Entry)> {
        let mut live = self.live();
        let epoch = self.epoch.fetch_add(1, Relaxed);
        let was_with_it = |entry: &Entry| entry.epoch == epoch;
        live.extract_if(|_, entry| {
            entry.purpose != Purpose::Serve
                || entry.newest.is_some()
                || (entry.sends >= MAX_SENDS && was_with_it(entry))
        })
        .collect()
    }

    /// Calls `send` for what was sent to an engine before the present one.
    pub fn resend(&self, mut send: impl FnMut(&Rid, &ToEngine, Epoch)) -> usize {
        let epoch = self.epoch();
        let mut sent = 0;
        for (rid, entry) in self.live().iter_mut().filter(|(_, entry)| entry.epoch < epoch) {
            if let Some(input) = &entry.input {
                send(rid, input, epoch);
                entry.epoch = epoch;
                entry.sends += 1;
                sent += 1;
            }
        }
        sent
    }

    /// Takes all out.
    pub fn drain(&self) -> Vec<(Rid, Entry)> {
        self.live().drain().collect()
    }

    /// Takes the users' requests out that are `meant`; probes stay.
    pub fn take_served(&self, meant: impl Fn(&Rid) -> bool) -> Vec<(Rid, Entry)> {
        self.live().extract_if(|rid, entry| entry.purpose == Purpose::Serve && meant(rid)).collect()
    }

    /// How many are live.
    pub fn len(&self) -> usize {
        self.live().len()
    }

    fn live(&self) -> MutexGuard<'_, HashMap<Rid, Entry>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
