//! How a folder's model rotates: the keys of `config.json` that say so, old and new.

use serde::Deserialize;

use super::{Checked, Raw};
use crate::model_runner::decoder::rope::{Llama3, Pairs, RopeConfig, RopeScaling, Yarn};
use crate::model_runner::weights::LoadError;
use crate::model_runner::weights::hparams::DEFAULT_ROPE_BASE;

/// `rope_scaling`, and `rope_parameters` as newer files have it.
#[derive(Deserialize)]
pub(super) struct RawRope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f32>,
    partial_rotary_factor: Option<f32>,
    factor: Option<f32>,
    low_freq_factor: Option<f32>,
    high_freq_factor: Option<f32>,
    original_max_position_embeddings: Option<f32>,
    beta_fast: Option<f32>,
    beta_slow: Option<f32>,
    attention_factor: Option<f32>,
    mscale: Option<f32>,
    mscale_all_dim: Option<f32>,
    truncate: Option<bool>,
}

impl Checked {
    /// The rotation, and how long a context has been learnt.
    pub(super) fn rope(&self, raw: &Raw, head_dim: usize) -> Result<(RopeConfig, usize), LoadError> {
        let parameters = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref());
        let base = parameters.and_then(|it| it.rope_theta).or(raw.rope_theta).unwrap_or(DEFAULT_ROPE_BASE);
        if !base.is_finite() || base < 1.0 {
            return Err(self.bad("rope_theta", format!("{base} is below 1")));
        }
        let part = parameters.and_then(|it| it.partial_rotary_factor).or(raw.partial_rotary_factor).unwrap_or(1.0);
        let dim = (head_dim as f32 * part) as usize;
        if dim > head_dim || !dim.is_multiple_of(2) || dim == 0 {
            let message = format!("{part} of {head_dim} dimensions is not an even number of them");
            return Err(self.bad("partial_rotary_factor", message));
        }
        let scaling = parameters.map_or(Ok(RopeScaling::None), |it| self.scaling(it, raw, base))?;
        let learnt = match &scaling {
            RopeScaling::Yarn(yarn) => raw.max_position_embeddings.max((yarn.original_context * yarn.factor) as usize),
            _ => raw.max_position_embeddings,
        };
        Ok((RopeConfig { dim, pairs: Pairs::Halves, base, scaling }, learnt))
    }

    fn scaling(&self, rope: &RawRope, raw: &Raw, base: f32) -> Result<RopeScaling, LoadError> {
        match rope.rope_type.as_deref() {
            None | Some("default") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear(self.stretch(rope)?)),
            Some("llama3") => self.llama3(rope).map(RopeScaling::Llama3),
            Some("yarn") => self.yarn(rope, raw, base).map(RopeScaling::Yarn),
            Some(other) => Err(self.unsupported(format!("the rope scaling {other:?}"))),
        }
    }

    fn llama3(&self, rope: &RawRope) -> Result<Llama3, LoadError> {
        let llama3 = Llama3 {
            factor: self.stretch(rope)?,
            low_freq_factor: self.needed("low_freq_factor", rope.low_freq_factor)?,
            high_freq_factor: self.needed("high_freq_factor", rope.high_freq_factor)?,
            original_context: self.needed("original_max_position_embeddings", rope.original_max_position_embeddings)?,
        };
        llama3.check().map_err(|message| self.bad("rope_scaling", message))?;
        Ok(llama3)
    }

    fn yarn(&self, rope: &RawRope, raw: &Raw, base: f32) -> Result<Yarn, LoadError> {
        if rope.mscale.is_some() || rope.mscale_all_dim.is_some() || rope.truncate == Some(false) {
            return Err(self.unsupported("yarn with mscale, or without truncate".to_owned()));
        }
        let factor = self.stretch(rope)?;
        let yarn = Yarn {
            factor,
            original_context: rope.original_max_position_embeddings.unwrap_or(raw.max_position_embeddings as f32),
            beta_fast: rope.beta_fast.unwrap_or(Yarn::BETA_FAST),
            beta_slow: rope.beta_slow.unwrap_or(Yarn::BETA_SLOW),
            attention_factor: rope.attention_factor.unwrap_or_else(|| Yarn::usual_attention_factor(factor)),
        };
        yarn.check(base).map_err(|message| self.bad("rope_scaling", message))?;
        Ok(yarn)
    }

    fn stretch(&self, rope: &RawRope) -> Result<f32, LoadError> {
        let factor = self.needed("factor", rope.factor)?;
        if factor < 1.0 { Err(self.bad("factor", format!("{factor} is below 1"))) } else { Ok(factor) }
    }

    fn needed(&self, key: &str, value: Option<f32>) -> Result<f32, LoadError> {
        match value {
            Some(value) if value.is_finite() => Ok(value),
            Some(value) => Err(self.bad(key, format!("is {value}"))),
            None => Err(self.bad(key, "is missing, which its rope scaling needs".to_owned())),
        }
    }
}
