//! What is logged, changed while the process runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::reload;

use super::{LogError, OURS};

/// The target of the line that each finished request has, at `debug`.
pub const REQUESTS: &str = "radiosonde::requests";

/// Libraries that carry our traces: their chatter about carrying would fill the log, or trace itself.
const NOISE: &str = "opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn,h2=warn,tonic=warn,hyper=warn,\
                     hyper_util=warn,tower=warn,reqwest=warn";

/// Which lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChoice {
    /// A level, or targets with levels as in `radiosonde=debug,warn`.
    pub filter: String,
    /// Whether each finished request has a line; `None`: as `filter` says.
    pub requests: Option<bool>,
}

impl LogChoice {
    /// All of it as one filter.
    #[must_use]
    pub fn directives(&self) -> String {
        match self.requests {
            None => self.filter.clone(),
            Some(true) => format!("{},{REQUESTS}=debug", self.filter),
            Some(false) => format!("{},{REQUESTS}=info", self.filter),
        }
    }

    /// The user's words come last and win. A lone word would be the target of lines that nobody writes, and the log empty.
    fn parse(&self) -> Result<EnvFilter, LogError> {
        let is_known = |word: &str| word.starts_with(OURS) || word.parse::<LevelFilter>().is_ok();
        let words = self.filter.split(',').map(str::trim);
        if let Some(word) = words.filter(|word| !word.contains(['=', '[', ':'])).find(|word| !is_known(word)) {
            return Err(LogError::Level { word: word.chars().take(40).collect() });
        }
        let unreadable = |source| LogError::Filter { filter: self.filter.clone(), source };
        EnvFilter::builder().parse(format!("{NOISE},{}", self.directives())).map_err(unreadable)
    }
}

/// Changes what the subscriber of this process lets through.
#[derive(Clone)]
pub struct LogControl(Arc<Inner>);

struct Inner {
    chosen: Mutex<LogChoice>,
    install: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
}

impl LogControl {
    /// The filter of a subscriber, and what changes it.
    ///
    /// # Errors
    /// `filter` cannot be read.
    pub(super) fn new<S: 'static>(filter: &str) -> Result<(reload::Layer<EnvFilter, S>, Self), LogError> {
        let chosen = LogChoice { filter: filter.to_owned(), requests: None };
        let (layer, handle) = reload::Layer::new(chosen.parse()?);
        let install = Box::new(move |filter| handle.reload(filter));
        Ok((layer, Self(Arc::new(Inner { chosen: Mutex::new(chosen), install }))))
    }

    /// What is let through now.
    #[must_use]
    pub fn chosen(&self) -> LogChoice {
        self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is not `None`, and says what holds from now on.
    ///
    /// # Errors
    /// `filter` cannot be read, or the subscriber is gone; nothing has changed then.
    pub fn change(&self, filter: Option<&str>, requests: Option<bool>) -> Result<LogChoice, LogError> {
        let mut chosen = self.0.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let filter = filter.map_or_else(|| chosen.filter.clone(), str::to_owned);
        let next = LogChoice { filter, requests: requests.or(chosen.requests) };
        let parsed = next.parse()?;
        tracing::warn!(filter = next.directives(), "what is logged changes"); // as long as warnings may still pass
        (self.0.install)(parsed)?;
        *chosen = next.clone();
        Ok(next)
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogControl").field(&self.chosen()).finish()
    }
}
