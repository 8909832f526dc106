//! Decoders of the Llama kind, by whatever name: one forward pass over a batch, all its tokens as rows of one matrix.

pub mod config;
mod batch;
mod layer;
mod heads;
pub mod rope;

use std::io;
use std::marker::PhantomData;
use std::mem;

use super::attention::{Attended, KvLayer};
use super::kernels::backend::{WithLanes, with_lanes};
use super::kernels::elementwise::rms_norm;
use super::kernels::scratch::with_floats;
use super::kernels::tile_memory::gather;
use super::kernels::{Activations, Columns, LANES, Lanes, PackedLinear, Team};
use super::{ForwardError, Logits, ModelRunner, PAGE_SIZE, SequenceSlice};
use crate::io_struct::{KernelBackend, ModelInfo};
use batch::{Batch, Layout, Limits};
pub use config::DecoderConfig;
pub use heads::HeadNorms;
pub use layer::LayerWeights;
use rope::{Angles, Rope};

/// A decoder with its KV pool and its threads, on kernels for one set of instructions.
struct DecoderRunner<L> {
    info: ModelInfo,
    config: DecoderConfig,
    weights: DecoderWeights,
    rope: Rope,
    angles: Angles,
    kv: Vec<KvLayer>,
    pages: usize,
    team: Team,
    layout: Layout,
    scratch: Scratch,
    lanes: PhantomData<L>,
}

/// All weights of a model.
pub struct DecoderWeights {
    /// One row for each id of the vocabulary.
    pub embedding: PackedLinear,
    /// The output head; `None`: the embedding is used.
    pub head: Option<PackedLinear>,
    /// Weight of the last norm, a number for each column of the residual.
    pub norm: Vec<f32>,
    /// From first to last.
    pub layers: Vec<LayerWeights>,
}

/// The values of a pass on their way; kept from pass to pass, so that their memory is.
#[derive(Default)]
struct Scratch {
    /// The residual stream.
    x: Columns,
    /// Input of a matrix product.
    normed: Activations,
    /// Queries, keys and values.
    qkv: Columns,
    /// Output of attention.
    attended: Attended,
    /// Gated, wide.
    hidden: Activations,
    /// Rows that want logits.
    last: Columns,
}

/// What a runner is put together from.
pub struct DecoderParts {
    /// `max_total_tokens` is the size of the KV pool, rounded up to whole pages.
    pub info: ModelInfo,
    /// Sizes.
    pub config: DecoderConfig,
    /// Weights.
    pub weights: DecoderWeights,
    /// Threads.
    pub team: Team,
}

impl DecoderParts {
    /// A runner on the kernels of `backend`.
    ///
    /// # Errors
    /// The system refuses the memory of the KV pool.
    pub fn assemble(self, backend: KernelBackend) -> io::Result<Box<dyn ModelRunner>> {
        with_lanes(backend, self)
    }
}

impl WithLanes for DecoderParts {
    type Output = io::Result<Box<dyn ModelRunner>>;

    fn run<L: Lanes>(self) -> Self::Output {
        Ok(Box::new(DecoderRunner::<L>::new(self)?))
    }
}

impl DecoderWeights {
    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(LayerWeights::bytes).sum();
        layers + self.embedding.bytes() + self.head.as_ref().map_or(0, PackedLinear::bytes)
    }
}

impl DecoderWeights {
    /// Moves all matrices into one piece of memory, in the order in which a pass reads them.
    pub fn gather(&mut self) {
        let layers = self.layers.iter_mut().flat_map(LayerWeights::matrices_mut);
        gather(&mut layers.chain(&mut self.head).chain([&mut self.embedding]).collect::<Vec<_>>());
    }
}

impl<L: Lanes> DecoderRunner<L> {
    fn new(DecoderParts { info, config, weights, team }: DecoderParts) -> io::Result<Self> {
        let pages = (info.max_total_tokens as usize).div_ceil(PAGE_SIZE);
        let layers = 0..weights.layers.len();
        let kv = layers.map(|_| KvLayer::new(config.kv_shape(), pages)).collect::<io::Result<_>>()?;
        let rope = Rope::new(&config.rope);
        let (angles, layout, scratch) = (rope.no_angles(), Layout::default(), Scratch::default());
        Ok(Self { info, config, weights, rope, angles, kv, pages, team, layout, scratch, lanes: PhantomData })
    }

    fn embed(&mut self, batch: &Batch<'_>) {
        let (rows, width) = (batch.rows.len(), self.config.residual_width());
        self.scratch.x.reshape(rows, width);
        let x = self.scratch.x.tiles_mut();
        with_floats(width, |embedding| {
            for (index, row) in batch.rows.iter().enumerate() {
                self.weights.embedding.row(row.token.index(), embedding);
                for (tile, values) in embedding.as_chunks::<LANES>().0.iter().enumerate() {
                    x[tile * rows + index] = *values;
                }
            }
        });
    }

    fn pass(&mut self, batch: &Batch<'_>, logits: &mut Logits) {
        if batch.rows.is_empty() {
            logits.reshape(0, self.info.vocab_size as usize);
            return;
        }
        self.embed(batch);
        self.rope.write_angles(batch.rows.iter().map(|row| row.position), &mut self.angles);
        for (layer, kv) in self.weights.layers.iter().zip(&mut self.kv) {
            layer.forward::<L>(&self.team, &self.config, batch, &self.angles, kv, &mut self.scratch);
        }
        self.write_logits(batch, logits);
    }

    /// The last norm and the head, for the rows that want it.
    fn write_logits(&mut self, batch: &Batch<'_>, out: &mut Logits) {
        let vocab_size = self.info.vocab_size as usize;
        let (wanted, scratch) = (batch.wanted, &mut self.scratch);
        out.reshape(wanted.len(), vocab_size);
        if wanted.is_empty() {
            return;
        }
        scratch.last.reshape(wanted.len(), self.config.residual_width());
        for (tile, to) in scratch.last.tiles_mut().chunks_exact_mut(wanted.len()).enumerate() {
            let from = scratch.x.tile(tile);
            to.iter_mut().zip(wanted).for_each(|(to, row)| *to = from[*row]);
        }
        let head = self.weights.head.as_ref().unwrap_or(&self.weights.embedding);
        let (norm, shape) = (self.config.norm(&self.weights.norm), head.input_shape(wanted.len()));
        rms_norm::<L>(&self.team, &scratch.last, norm, shape, &mut scratch.normed);
        head.forward_rows::<L>(&self.team, &scratch.normed, &mut out.values, &mut out.peaks);
    }
}

impl<L: Lanes> ModelRunner for DecoderRunner<L> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        let limits = Limits {
            vocab_size: self.info.vocab_size as usize,
            context_length: self.info.context_length as usize,
            pages: self.pages,
        };
        let mut layout = mem::take(&mut self.layout);
        let result = layout.lay_out(batch, limits).map(|batch| self.pass(&batch, logits));
        self.layout = layout;
        result
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let cost = count * self.info.vocab_size as usize / LANES;
        self.team.for_each(cost, 0..count, work);
    }
}
