//! Ids that cross stations.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request's id. Cheap to copy around.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rid(Arc<str>);

/// The most bytes of a caller's own rid.
pub const RID_MAX_BYTES: usize = 128;

/// Why a caller's rid is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RidError {
    /// Nothing in it.
    #[error("rid must not be empty")]
    Empty,
    /// Longer than [`RID_MAX_BYTES`].
    #[error("rid has {0} bytes, the limit is {RID_MAX_BYTES}")]
    TooLong(usize),
}

impl Rid {
    /// A fresh unique id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string().into())
    }

    /// A caller's own id.
    ///
    /// # Errors
    /// Empty, or longer than [`RID_MAX_BYTES`].
    pub fn from_caller(text: &str) -> Result<Self, RidError> {
        match text.len() {
            0 => Err(RidError::Empty),
            len if len > RID_MAX_BYTES => Err(RidError::TooLong(len)),
            _ => Ok(Self(text.into())),
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A probe's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProbeId(Uuid);

impl ProbeId {
    /// A fresh unique id. Never made from the clock: clocks of two workers collide.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The rid under which the probe travels.
    #[must_use]
    pub fn rid(self) -> Rid {
        Rid(self.to_string().into())
    }
}

impl fmt::Display for ProbeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HEALTH_CHECK_{}", self.0.simple())
    }
}

/// A frontend's name on the engine's side: replies go back by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HttpWorkerIpc(Arc<str>);

impl HttpWorkerIpc {
    /// Names a frontend.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HttpWorkerIpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A row of the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
