//! The threads that share one forward pass.
#![expect(unsafe_code, reason = "a job that borrows from the caller's stack is shown to other threads")]

pub mod cores;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use cores::stay_on;

/// Work below this is done before another thread has even noticed it. In steps of a kernel.
const WORTH_SHARING: usize = 4096;

/// Most shares that a member of the team gets of one job: enough to even out a member that the system has paused.
const SHARES: usize = 4;

/// What a share is worth at least, in steps of a kernel. A short job is reading memory above all, and that is fastest in
/// one stretch for each member: between two of them the processor does not know what comes next.
const SHARE_COST: usize = 1 << 18;

/// How long a member looks out for the next job before it goes to sleep: about 50 µs. Within a forward pass the next
/// one comes at once; between two passes an idle engine must not burn a core.
const SPINS: u32 = 20_000;

/// Set in [`Shared::gate`] while members may join the job.
const OPEN: usize = 1 << (usize::BITS - 1);

/// A few threads that work on one job at a time, together with the caller.
///
/// The caller never waits for a member that has not begun: on a busy machine it simply does more of the job itself.
pub struct Team {
    shared: Arc<Shared>,
    members: Vec<Member>,
    /// Where the caller is to stay, once it has given its first job. Not `Sync`: jobs are given one after the other, and a
    /// job cannot give another one.
    caller: Cell<Option<u32>>,
}

struct Member {
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

/// What is to be done; called by each member once.
type Job = dyn Fn() + Sync;

struct Shared {
    /// Counts jobs, so that a member joins each only once.
    epoch: AtomicUsize,
    /// [`OPEN`], and the number of members inside.
    gate: AtomicUsize,
    /// Valid while the gate is open or a member inside.
    job: UnsafeCell<Option<*const Job>>,
    /// For each member: it sleeps and wants to be woken.
    asleep: Vec<AtomicBool>,
    /// What a member's job panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    is_over: AtomicBool,
}

// SAFETY: `job` is written by the one caller (a team is not `Sync`), while the gate is closed and nobody inside; members
// read it only after they have entered through the open gate.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` points to a `Sync` closure, and is used only while the caller of `run` keeps it alive.
unsafe impl Send for Shared {}

impl Team {
    /// A team of `threads`, the caller among them.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::on(threads, &[])
    }

    /// A team of which each stays on a processor of its own, the caller on the first of `processors`. Those for whom there
    /// is none go where the system puts them.
    #[must_use]
    pub fn on(threads: usize, processors: &[u32]) -> Self {
        let others = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            gate: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            asleep: (0..others).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            is_over: AtomicBool::new(false),
        });
        let place = |thread: usize| processors.get(thread).copied();
        let members = (0..others).filter_map(|member| Member::spawn(member, &shared, place(member + 1))).collect();
        Self { shared, members, caller: Cell::new(place(0)) }
    }

    /// Threads, the caller among them.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.members.len() + 1
    }

    /// How many of `items` equal items make one share of the work, all of which costs so many steps of a kernel.
    #[must_use]
    pub fn share(&self, items: usize, cost: usize) -> usize {
        let shares = (cost / self.threads() / SHARE_COST).clamp(1, SHARES);
        items.div_ceil(shares * self.threads()).max(1)
    }

    /// Calls `work` for each item, on whichever thread is free. `cost` in steps of a kernel decides whether it is worth
    /// sharing at all.
    pub fn for_each<T, I>(&self, cost: usize, items: I, work: impl Fn(T) + Sync)
    where
        I: Iterator<Item = T> + Send,
    {
        if self.members.is_empty() || cost < WORTH_SHARING {
            return items.for_each(work);
        }
        let items = Mutex::new(items);
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.run(&|| {
            while let Some(item) = next() {
                work(item);
            }
        });
    }

    /// Lets everybody run `job` at the same time; returns when all who began have ended.
    fn run(&self, job: &(dyn Fn() + Sync + '_)) {
        if let Some(processor) = self.caller.take() {
            stay_on(processor);
        }
        {
            let closing = CloseOnDrop(&self.shared);
            self.shared.open(job);
            self.wake();
            job();
            drop(closing);
        }
        let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn wake(&self) {
        for (member, asleep) in self.members.iter().zip(&self.shared.asleep) {
            if asleep.swap(false, SeqCst) {
                member.thread.unpark();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared.epoch.fetch_add(1, SeqCst);
        for member in &mut self.members {
            member.thread.unpark();
            if let Some(handle) = member.handle.take() {
                // Members catch the panics of their jobs, so there is nothing to pass on.
                let _ = handle.join();
            }
        }
    }
}

impl Member {
    /// `None` if the system refuses another thread; the team is smaller then.
    fn spawn(number: usize, shared: &Arc<Shared>, processor: Option<u32>) -> Option<Self> {
        let shared = Arc::clone(shared);
        let name = format!("forward-{}", number + 1);
        let handle = thread::Builder::new().name(name).spawn(move || {
            processor.into_iter().for_each(stay_on);
            shared.serve(number);
        });
        let handle = handle.ok()?;
        Some(Self { thread: handle.thread().clone(), handle: Some(handle) })
    }
}

/// Closes the gate and waits until the last member has left, also if the caller's own share of the job panics.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.gate.fetch_and(!OPEN, SeqCst) & !OPEN;
        let mut spins = 0;
        while inside > 0 {
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
            inside = self.0.gate.load(SeqCst) & !OPEN;
        }
    }
}

impl Shared {
    /// Publishes `job`. The caller keeps it alive until [`CloseOnDrop`] has run.
    fn open(&self, job: &(dyn Fn() + Sync + '_)) {
        let job: *const (dyn Fn() + Sync + '_) = job;
        // SAFETY: only the lifetime is erased. The pointer is followed by members inside of the gate alone, and
        // `CloseOnDrop` keeps `run` from returning before the gate is closed and the last of them has left.
        let job = unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const Job>(job) };
        // SAFETY: the gate is closed and nobody inside since the last `run` ended, so nobody reads.
        unsafe { *self.job.get() = Some(job) };
        self.gate.fetch_or(OPEN, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
    }

    /// The life of a member.
    fn serve(&self, member: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_epoch(member, seen);
            if self.is_over.load(SeqCst) {
                return;
            }
            if self.gate.fetch_add(1, SeqCst) & OPEN != 0 {
                // SAFETY: this member is inside, so the job that was published before the gate opened is still alive,
                // and `open` does not write.
                let job = unsafe { &*(*self.job.get()).expect("a job is published before the gate opens") };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                }
            }
            self.gate.fetch_sub(1, SeqCst);
        }
    }

    /// Looks out for a job after `seen`, then sleeps.
    fn next_epoch(&self, member: usize, seen: usize) -> usize {
        for _ in 0..SPINS {
            let epoch = self.epoch.load(SeqCst);
            if epoch != seen {
                return epoch;
            }
            hint::spin_loop();
        }
        loop {
            // Announced first, looked at again after that: whoever publishes in between sees the announcement.
            self.asleep[member].store(true, SeqCst);
            let epoch = self.epoch.load(SeqCst);
            if epoch != seen {
                self.asleep[member].store(false, SeqCst);
                return epoch;
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests;
