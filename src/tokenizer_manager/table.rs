//! Who is live: rid to the state that its waiter watches.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::request::RequestState;
use crate::clock::MonoNanos;
use crate::io_struct::{Purpose, Rid};
use crate::telemetry::labels::RequestEndpoint;
use crate::telemetry::metrics::InFlight;

/// The most live requests of one frontend, probes included.
pub const MAX_LIVE_REQUESTS: usize = 8192;

/// A live request.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What its waiter watches.
    pub state: Arc<RequestState>,
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
    /// When its newest token came, and how many there were.
    pub newest: Option<(MonoNanos, u32)>,
}

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
}

impl RequestTable {
    /// Enters a request.
    pub fn insert(&self, rid: &Rid, entry: Entry) -> Result<(), Refused> {
        let mut live = self.live();
        if live.len() >= MAX_LIVE_REQUESTS {
            return Err(Refused::Full);
        }
        match live.entry(rid.clone()) {
            MapEntry::Occupied(_) => Err(Refused::Duplicate),
            MapEntry::Vacant(place) => {
                place.insert(entry);
                Ok(())
            }
        }
    }

    /// Changes a live request and gives a copy of it.
    pub fn update(&self, rid: &Rid, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
        let mut live = self.live();
        let entry = live.get_mut(rid)?;
        change(entry);
        Some(entry.clone())
    }

    /// Takes a request out.
    pub fn remove(&self, rid: &Rid) -> Option<Entry> {
        self.live().remove(rid)
    }

    /// Takes all out.
    pub fn drain(&self) -> Vec<(Rid, Entry)> {
        self.live().drain().collect()
    }

    /// Takes the users' requests out; probes stay.
    pub fn drain_served(&self) -> Vec<(Rid, Entry)> {
        self.live().extract_if(|_, entry| entry.purpose == Purpose::Serve).collect()
    }

    /// How many are live.
    pub fn len(&self) -> usize {
        self.live().len()
    }

    fn live(&self) -> MutexGuard<'_, HashMap<Rid, Entry>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
