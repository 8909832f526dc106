//! What became of the grammars that requests gave for their output.

use prometheus::{Error, IntCounterVec, Registry};

use super::declare::counter_vec;
use crate::telemetry::labels::{GrammarField, GrammarOutcome};

/// The series of grammars.
#[derive(Debug)]
pub struct GrammarMetrics {
    compiled: IntCounterVec,
}

impl GrammarMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let compiled = counter_vec(
            registry,
            "radiosonde_grammars_total",
            "Grammars that requests gave for their output, by the field that gave them. refused is the client's business \
             (400): wrong, too large or not supported.",
            &["field", "outcome"],
        )?;
        for field in GrammarField::ALL {
            for outcome in GrammarOutcome::ALL {
                compiled.with_label_values(&[field.as_str(), outcome.as_str()]);
            }
        }
        Ok(Self { compiled })
    }

    /// A request's grammar could be compiled, or not.
    pub fn compiled(&self, field: GrammarField, outcome: GrammarOutcome) {
        self.compiled.with_label_values(&[field.as_str(), outcome.as_str()]).inc();
    }
}
