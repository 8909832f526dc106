//! Faults on purpose: what a drill can break, by name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// One fault. As JSON: `{"fault": "loop_frozen", "seconds": 2}`; as a flag: `loop_frozen:seconds=2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "fault", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The scheduler's thread panics at its next turn.
    SchedulerPanic,
    /// The scheduler's loop stands, outside of a step.
    LoopFrozen {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// The loop turns and forms no batch.
    NoBatches {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// Each step takes longer.
    SlowSteps {
        /// By so much.
        #[serde(with = "in_millis")]
        #[schemars(with = "f64")]
        ms: Duration,
    },
    /// One step fails.
    FailStep {
        /// The n-th from now; 1 is the next.
        nth: u64,
    },
    /// The model loads slowly; only at the start.
    SlowLoad {
        /// It takes so much longer.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// A busy scheduler's answers to probes are lost on the way.
    DropHealthCheckOutput,
    /// A busy scheduler's answers to probes are late.
    DelayHealthCheckOutput {
        /// By so much.
        #[serde(with = "in_millis")]
        #[schemars(with = "f64")]
        ms: Duration,
    },
    /// The engine does not read from its frontends.
    EngineStopsReading {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// The frontend does not read from its engine.
    FrontendStopsReading {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// The detokenizer's thread stands.
    DetokenizerStuck {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// Every worker of the frontend's main runtime stands.
    FrontendBlocked {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
    /// The KV pool hands nothing out.
    OutOfKv {
        /// For so long.
        #[serde(with = "in_seconds")]
        #[schemars(with = "f64")]
        seconds: Duration,
    },
}

/// Which process a fault happens in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSide {
    /// The frontend that was asked for it.
    Frontend,
    /// The engine.
    Engine,
}

/// What is wrong with a fault as a flag.
#[derive(Debug, thiserror::Error)]
#[error("'{spec}' is no fault: {source}; write it as in loop_frozen:seconds=2")]
pub struct FaultError {
    spec: String,
    source: serde_json::Error,
}

impl Fault {
    /// Where it happens.
    #[must_use]
    pub const fn side(&self) -> FaultSide {
        match self {
            Self::FrontendStopsReading { .. } | Self::DetokenizerStuck { .. } | Self::FrontendBlocked { .. } => {
                FaultSide::Frontend
            }
            Self::SchedulerPanic
            | Self::LoopFrozen { .. }
            | Self::NoBatches { .. }
            | Self::SlowSteps { .. }
            | Self::FailStep { .. }
            | Self::SlowLoad { .. }
            | Self::DropHealthCheckOutput
            | Self::DelayHealthCheckOutput { .. }
            | Self::EngineStopsReading { .. }
            | Self::OutOfKv { .. } => FaultSide::Engine,
        }
    }

    /// How long it lasts; `None`: until it is switched off or used up.
    #[must_use]
    pub const fn lasts(&self) -> Option<Duration> {
        match self {
            Self::LoopFrozen { seconds }
            | Self::NoBatches { seconds }
            | Self::EngineStopsReading { seconds }
            | Self::FrontendStopsReading { seconds }
            | Self::DetokenizerStuck { seconds }
            | Self::FrontendBlocked { seconds }
            | Self::OutOfKv { seconds } => Some(*seconds),
            Self::SchedulerPanic
            | Self::SlowSteps { .. }
            | Self::FailStep { .. }
            | Self::SlowLoad { .. }
            | Self::DropHealthCheckOutput
            | Self::DelayHealthCheckOutput { .. } => None,
        }
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(spec: &str) -> Result<Self, FaultError> {
        let (name, parameter) = spec.split_once(':').map_or((spec, None), |(name, rest)| (name, Some(rest)));
        let mut json = Map::from_iter([("fault".to_owned(), name.into())]);
        if let Some(parameter) = parameter {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            json.insert(key.to_owned(), value);
        }
        serde_json::from_value(json.into()).map_err(|source| FaultError { spec: spec.to_owned(), source })
    }
}

/// As a flag.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        let fields = json.as_object().ok_or(fmt::Error)?;
        f.write_str(fields["fault"].as_str().ok_or(fmt::Error)?)?;
        for (key, value) in fields.iter().filter(|(key, _)| *key != "fault") {
            write!(f, ":{key}={value}")?;
        }
        Ok(())
    }
}

/// The longest fault.
const MAX_SECONDS: f64 = 3600.0;

fn checked<E: serde::de::Error>(seconds: f64) -> Result<Duration, E> {
    if seconds > 0.0 && seconds <= MAX_SECONDS {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(E::custom(format!("a fault lasts more than 0 and at most {MAX_SECONDS} seconds")))
    }
}

mod in_seconds {
    use super::{Deserialize, Deserializer, Duration, Serializer, checked};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        checked(f64::deserialize(deserializer)?)
    }
}

mod in_millis {
    use super::{Deserialize, Deserializer, Duration, Serializer, checked};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64() * 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        checked(f64::deserialize(deserializer)? / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_the_same_as_flag_as_json_and_on_the_wire() {
        for (flag, json) in [
            ("scheduler_panic", r#"{"fault":"scheduler_panic"}"#),
            ("loop_frozen:seconds=2.5", r#"{"fault":"loop_frozen","seconds":2.5}"#),
            ("slow_steps:ms=20.0", r#"{"fault":"slow_steps","ms":20}"#),
            ("fail_step:nth=3", r#"{"fault":"fail_step","nth":3}"#),
        ] {
            let fault: Fault = flag.parse().unwrap();
            assert_eq!(fault, serde_json::from_str(json).unwrap(), "{flag}");
            assert_eq!(fault.to_string(), flag);
            let wire = rmp_serde::to_vec_named(&fault).unwrap();
            assert_eq!(rmp_serde::from_slice::<Fault>(&wire).unwrap(), fault, "{flag}");
        }
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for wrong in [
            "",
            "nosuch",
            "loop_frozen",
            "loop_frozen:seconds=0",
            "loop_frozen:seconds=1e9",
            "loop_frozen:seconds=x",
            "loop_frozen:minutes=1",
            "fail_step:nth=-1",
        ] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
        let message = "nosuch".parse::<Fault>().unwrap_err().to_string();
        assert!(message.contains("scheduler_panic"), "it names those that exist: {message}");
    }
}
