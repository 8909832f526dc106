//! Threads that compile grammars and make masks, so that the scheduler does neither.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::{Follower, GrammarError, Grammars, Progress, TokenMask};
use crate::clock::thread_cpu_time;
use crate::io_struct::{Grammar, TokenId};

/// The most work, in time of one core, that it may take to find what may come next: usual grammars take less than a
/// thousandth of a second, and everybody in the batch waits for it.
const MASK_LIMIT: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;
type Build = Box<dyn Fn() -> Result<Grammars, GrammarError> + Send + Sync>;

/// The threads. One makes masks; the other compiles, which takes longer and must keep nobody waiting who runs already.
pub struct GrammarWorkers {
    compile: Sender<Job>,
    mask: Sender<Job>,
    grammars: Arc<OnceLock<Result<Grammars, GrammarError>>>,
    build: Arc<Build>,
    mask_limit: Duration,
}

impl GrammarWorkers {
    /// Starts the threads. `build` reads the vocabulary; it is called when the first grammar comes.
    ///
    /// # Errors
    /// The operating system refuses threads.
    pub fn start(
        build: impl Fn() -> Result<Grammars, GrammarError> + Send + Sync + 'static,
    ) -> std::io::Result<Arc<Self>> {
        Self::start_with(MASK_LIMIT, build)
    }

    fn start_with(
        mask_limit: Duration,
        build: impl Fn() -> Result<Grammars, GrammarError> + Send + Sync + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let (compile, mask) = (worker("grammar-compile")?, worker("grammar")?);
        let build: Build = Box::new(build);
        Ok(Arc::new(Self { compile, mask, grammars: Arc::default(), build: Arc::new(build), mask_limit }))
    }

    /// Begins with `grammar`: it is compiled, and then what may come first is known.
    #[must_use]
    pub fn begin(self: &Arc<Self>, grammar: Grammar) -> Constraint {
        let (grammars, build) = (Arc::clone(&self.grammars), Arc::clone(&self.build));
        let first = move || {
            let grammars = grammars.get_or_init(|| build()).as_ref().map_err(Clone::clone)?;
            let mut follower = grammars.follow(&grammar)?;
            let mask = follower.mask()?;
            Ok(Next { follower, mask })
        };
        Constraint { state: State::Asked(ask(&self.compile, first)), workers: Arc::clone(self) }
    }
}

/// A thread that does jobs in their order, and outlives those that panic.
fn worker(name: &str) -> std::io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        for job in queue {
            let _ = catch_unwind(AssertUnwindSafe(job)); // whoever waits for it hears that nothing comes
        }
    })?;
    Ok(jobs)
}

type Answer = Result<Next, GrammarError>;

fn ask(worker: &Sender<Job>, job: impl FnOnce() -> Answer + Send + 'static) -> Receiver<Answer> {
    let (answer, receiver) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        let _ = answer.send(job()); // nobody waits for an aborted request
    });
    let _ = worker.send(job); // if the thread is gone, so is the answer, and whoever waits hears it
    receiver
}

/// An output that follows its grammar, between two tokens.
#[derive(Debug)]
struct Next {
    follower: Follower,
    mask: TokenMask,
}

/// A request's grammar, as far as its output has come.
pub struct Constraint {
    state: State,
    workers: Arc<GrammarWorkers>,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}

#[derive(Debug)]
enum State {
    /// A thread is at it.
    Asked(Receiver<Answer>),
    /// What may come next is known.
    Ready(Box<Next>),
    /// Its grammar cannot be followed any more.
    Failed(GrammarError),
    /// Nothing more comes.
    Complete,
}

impl Constraint {
    /// Waits until it is known what may come next.
    ///
    /// # Errors
    /// The grammar cannot be followed.
    pub fn wait(&mut self) -> Result<&TokenMask, GrammarError> {
        if let State::Asked(receiver) = &self.state {
            self.state = State::from(receiver.recv().unwrap_or_else(|_| Err(lost())));
        }
        match &self.state {
            State::Ready(next) => Ok(&next.mask),
            State::Failed(error) => Err(error.clone()),
            State::Asked(_) | State::Complete => Err(GrammarError::new("the grammar is complete already")),
        }
    }

    /// Is it known what may come next, or that nothing can? Never waits.
    pub fn is_ready(&mut self) -> bool {
        self.is_ready_within(Duration::ZERO)
    }

    /// The same, after `limit` at the latest.
    pub fn is_ready_within(&mut self, limit: Duration) -> bool {
        let State::Asked(receiver) = &self.state else { return true };
        self.state = match receiver.recv_timeout(limit) {
            Ok(answer) => State::from(answer),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => State::Failed(lost()),
        };
        true
    }

    /// What may come next, if it is known.
    #[must_use]
    pub fn mask(&self) -> Option<&TokenMask> {
        match &self.state {
            State::Ready(next) => Some(&next.mask),
            State::Asked(_) | State::Failed(_) | State::Complete => None,
        }
    }

    /// `token` has come; a thread finds out what may come next while the model computes.
    ///
    /// # Errors
    /// It was not allowed, or the grammar cannot be followed any more.
    pub fn take(&mut self, token: TokenId) -> Result<Progress, GrammarError> {
        self.wait()?;
        let State::Ready(next) = std::mem::replace(&mut self.state, State::Complete) else {
            return Ok(Progress::Complete);
        };
        let mut follower = next.follower;
        let progress = follower.take(token)?;
        if progress == Progress::Open {
            let limit = self.workers.mask_limit;
            self.state = State::Asked(ask(&self.workers.mask, move || {
                let began = thread_cpu_time();
                let mask = follower.mask()?;
                if thread_cpu_time() - began > limit {
                    return Err(GrammarError::new("it takes too much work to find what may come next"));
                }
                Ok(Next { follower, mask })
            }));
        }
        Ok(progress)
    }
}

impl From<Answer> for State {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(next) => Self::Ready(Box::new(next)),
            Err(error) => Self::Failed(error),
        }
    }
}

fn lost() -> GrammarError {
    GrammarError::new("the thread that follows the grammar failed")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::io_struct::GrammarSyntax;
    use crate::structured::tests::following;
    use crate::telemetry::labels::GrammarField;

    fn regex(text: &str) -> Grammar {
        Grammar { field: GrammarField::Regex, syntax: GrammarSyntax::Regex, text: text.into() }
    }

    #[test]
    fn many_outputs_follow_their_own_grammars() {
        let built = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&built);
        let workers = GrammarWorkers::start(move || {
            count.fetch_add(1, Relaxed);
            Ok(following())
        });
        let workers = workers.unwrap();
        assert_eq!(built.load(Relaxed), 0, "not before it is needed");
        let mut outputs: Vec<Constraint> =
            (1..=8).map(|len| workers.begin(regex(&format!("[{len}]{{{len}}}")))).collect();
        for round in 1..=8 {
            for (len, output) in (1..).zip(&mut outputs) {
                let token = TokenId(u32::from(b'0') + len);
                if round > len {
                    assert!(output.wait().is_err(), "it is complete");
                    continue;
                }
                let mask = output.wait().unwrap().clone();
                let allowed: u32 = mask.words().iter().map(|word| word.count_ones()).sum();
                assert_eq!((allowed, mask.words()[1] >> (token.0 - 32) & 1), (1, 1));
                assert!(output.is_ready() && output.mask().is_some());
                let want = if round == len { Progress::Complete } else { Progress::Open };
                assert_eq!(output.take(token), Ok(want));
            }
        }
        assert_eq!(built.load(Relaxed), 1);
    }

    #[test]
    fn too_much_work_ends_an_output() {
        let workers = GrammarWorkers::start_with(Duration::ZERO, || Ok(following())).unwrap();
        let mut output = workers.begin(regex("aaa"));
        assert_eq!(output.take(TokenId(97)), Ok(Progress::Open), "the first mask is part of the compilation");
        assert!(output.wait().is_err());
    }

    #[test]
    fn what_cannot_be_followed_says_so_and_harms_nobody() {
        let workers = GrammarWorkers::start(|| Ok(following())).unwrap();
        assert!(workers.begin(regex("(")).wait().is_err());
        let mut output = workers.begin(regex("ab"));
        assert!(output.take(TokenId(98)).is_err() && output.wait().is_err());
        let panics = GrammarWorkers::start(|| panic!("a vocabulary that cannot be read")).unwrap();
        assert_eq!(panics.begin(regex("a")).wait().unwrap_err(), lost());
        assert_eq!(panics.begin(regex("a")).take(TokenId(97)), Err(lost()));
        assert_eq!(workers.begin(regex("a")).take(TokenId(97)), Ok(Progress::Complete));
    }
}
