//! One layer: attention, then the gated feed-forward, each on the normed residual and added to it.

use super::super::PAGE_SIZE;
use super::super::attention::kv_pool::{KeyValue, extent_of};
use super::super::attention::{Attended, KvLayer, attend};
use super::super::kernels::elementwise::rms_norm;
use super::super::kernels::packed::gated;
use super::super::kernels::scratch::with_floats;
use super::super::kernels::{BLOCK, LANES, Lanes, PackedLinear, Team};
use super::batch::{Batch, Row};
use super::heads::{HeadNorms, Heads};
use super::rope::Angles;
use super::{DecoderConfig, Scratch};

/// Weights of one layer.
pub struct LayerWeights {
    /// Norm in front of attention, a number for each column of the residual.
    pub attention_norm: Vec<f32>,
    /// Queries, keys and values on top of each other.
    pub qkv: PackedLinear,
    /// Added to them, where the family has it.
    pub qkv_bias: Option<Vec<f32>>,
    /// Norms over each head, where the family has them.
    pub head_norms: Option<HeadNorms>,
    /// Heads back to the residual.
    pub attention_output: PackedLinear,
    /// Norm in front of the feed-forward, the same.
    pub ffn_norm: Vec<f32>,
    /// What passes through SiLU, and below it what is gated.
    pub ffn_gate_up: PackedLinear,
    /// Back to the residual.
    pub ffn_down: PackedLinear,
}

impl LayerWeights {
    pub(super) fn bytes(&self) -> usize {
        let matrices = [&self.qkv, &self.attention_output, &self.ffn_gate_up, &self.ffn_down];
        matrices.into_iter().map(PackedLinear::bytes).sum()
    }

    /// In the order of their use.
    pub(super) fn matrices_mut(&mut self) -> [&mut PackedLinear; 4] {
        [&mut self.qkv, &mut self.attention_output, &mut self.ffn_gate_up, &mut self.ffn_down]
    }

    /// Moves the residual `scratch.x` one layer on, and keys and values of the batch into `kv`.
    pub(super) fn forward<L: Lanes>(
        &self,
        team: &Team,
        config: &DecoderConfig,
        batch: &Batch<'_>,
        angles: &Angles,
        kv: &mut KvLayer,
        scratch: &mut Scratch,
    ) {
        let rows = scratch.x.rows();
        let shape = self.qkv.input_shape(rows);
        rms_norm::<L>(team, &scratch.x, config.norm(&self.attention_norm), shape, &mut scratch.normed);
        self.qkv.forward::<L>(team, &scratch.normed, &mut scratch.qkv);
        let heads = Heads { config, width: config.head_width(), layer: self, angles, qkv: &scratch.qkv };
        write_kv::<L>(team, batch, heads, kv);
        attend_batch::<L>(team, batch, heads, kv, &mut scratch.attended);
        self.gather_attended::<L>(team, batch, scratch);
        self.attention_output.add_to::<L>(team, &scratch.normed, &mut scratch.x);
        let shape = self.ffn_gate_up.input_shape(rows);
        rms_norm::<L>(team, &scratch.x, config.norm(&self.ffn_norm), shape, &mut scratch.normed);
        gated::<L>(team, &self.ffn_gate_up, &scratch.normed, self.ffn_down.form(), &mut scratch.hidden);
        self.ffn_down.add_to::<L>(team, &scratch.hidden, &mut scratch.x);
    }

    /// From `scratch.attended` to `scratch.normed`, as the next product wants it.
    fn gather_attended<L: Lanes>(&self, team: &Team, batch: &Batch<'_>, scratch: &mut Scratch) {
        let (attended, shape) = (&scratch.attended, self.attention_output.input_shape(batch.rows.len()));
        scratch.normed.fill::<L>(
            team,
            shape,
            shape.rows * shape.columns / 4,
            #[inline(always)]
            |block, first, out| {
                for (row, out) in out.iter_mut().enumerate() {
                    for (half, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                        *out = *attended.columns(first + row, block * BLOCK + half * LANES);
                    }
                }
            },
        );
    }
}

fn attend_batch<L: Lanes>(team: &Team, batch: &Batch<'_>, heads: Heads<'_>, kv: &KvLayer, attended: &mut Attended) {
    let scale = 1.0 / (heads.config.head_dim as f32).sqrt();
    attend::<L>(
        team,
        kv,
        batch.groups(),
        #[inline(always)]
        |row, head, to| {
            heads.query::<L>(row, head, to);
            to.iter_mut().for_each(|value| *value *= scale);
        },
        attended,
    );
}

fn write_kv<L: Lanes>(team: &Team, batch: &Batch<'_>, heads: Heads<'_>, kv: &mut KvLayer) {
    let cost = batch.rows.len() * heads.config.head_count_kv * heads.width / 2;
    let extent = |row: &usize| extent_of(batch.rows[*row].page);
    let mut extents = kv.extents_mut();
    let items = batch.by_page.chunk_by(|a, b| extent(a) == extent(b)).flat_map(|rows| {
        let heads = extents.take(extent(&rows[0])).enumerate();
        heads.map(move |(head, part)| (head, part, rows))
    });
    team.for_each(cost, items, |(head, mut part, rows)| {
        with_floats(2 * heads.width, |floats| {
            L::vectorise(
                #[inline(always)]
                || {
                    let (key, value) = floats.split_at_mut(heads.width);
                    for row in rows {
                        heads.key::<L>(*row, head, key);
                        heads.value(*row, head, value);
                        let Row { page, position, .. } = batch.rows[*row];
                        part.write::<L>(page, position % PAGE_SIZE, KeyValue { key, value });
                    }
                },
            );
        });
    });
}
