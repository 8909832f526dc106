//! Weight matrices of floats, sixteen rows side by side, and their product with float activations.

use super::{Columns, LANES, Lanes, Team};

/// Rows of activations that a column of weights serves while it is in registers.
const TILE_ROWS: usize = 8;

/// A weight matrix `W` of floats: `y = W x`.
#[derive(Debug)]
pub struct FloatLinear {
    inputs: usize,
    outputs: usize,
    /// For each sixteen rows of `W`, column after column; the last rows are filled up with zeros.
    columns: Vec<[f32; LANES]>,
}

impl FloatLinear {
    /// Packs `weights`, which are row after row with `inputs` columns each.
    #[must_use]
    pub fn pack(weights: &[f32], inputs: usize) -> Self {
        let outputs = weights.len() / inputs.max(1);
        let mut columns = Vec::with_capacity(outputs.div_ceil(LANES) * inputs);
        for rows in weights.chunks(LANES * inputs.max(1)) {
            let row = |lane: usize| rows.get(lane * inputs..(lane + 1) * inputs);
            columns
                .extend((0..inputs).map(|column| std::array::from_fn(|lane| row(lane).map_or(0.0, |row| row[column]))));
        }
        Self { inputs, outputs, columns }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.columns.as_slice())
    }

    /// `out = x Wᵀ`, the columns of `out` rounded up to a multiple of 16.
    pub fn forward<L: Lanes>(&self, team: &Team, x: &Columns, out: &mut Columns) {
        out.reshape(x.rows(), self.outputs.next_multiple_of(LANES));
        self.run::<L>(team, x, out.tiles_mut(), |sum, _| sum);
    }

    /// `out += x Wᵀ`.
    pub fn add_to<L: Lanes>(&self, team: &Team, x: &Columns, out: &mut Columns) {
        self.run::<L>(team, x, out.tiles_mut(), |sum, before| L::add(L::load(before), sum));
    }

    fn run<L: Lanes>(
        &self,
        team: &Team,
        x: &Columns,
        out: &mut [[f32; LANES]],
        combine: impl Fn(L::Floats, &[f32; LANES]) -> L::Floats + Sync + Copy,
    ) {
        let rows = x.rows().max(1);
        let stripes = team.share(self.outputs.div_ceil(LANES));
        let cost = rows * self.inputs * self.outputs / LANES;
        team.for_each(cost, out.chunks_mut(stripes * rows).enumerate(), |(share, out)| {
            for (stripe, out) in out.chunks_mut(rows).enumerate() {
                let columns = &self.columns[(share * stripes + stripe) * self.inputs..][..self.inputs];
                for (chunk, out) in out.chunks_mut(TILE_ROWS).enumerate() {
                    multiply::<L>(columns, x, chunk * TILE_ROWS, out, combine);
                }
            }
        });
    }
}

#[inline(always)]
fn multiply<L: Lanes>(
    columns: &[[f32; LANES]],
    x: &Columns,
    row: usize,
    out: &mut [[f32; LANES]],
    combine: impl Fn(L::Floats, &[f32; LANES]) -> L::Floats,
) {
    match out.len() {
        1 => store::<L, 1>(product::<L, 1>(columns, x, row), out, combine),
        2 => store::<L, 2>(product::<L, 2>(columns, x, row), out, combine),
        3 => store::<L, 3>(product::<L, 3>(columns, x, row), out, combine),
        4 => store::<L, 4>(product::<L, 4>(columns, x, row), out, combine),
        5 => store::<L, 5>(product::<L, 5>(columns, x, row), out, combine),
        6 => store::<L, 6>(product::<L, 6>(columns, x, row), out, combine),
        7 => store::<L, 7>(product::<L, 7>(columns, x, row), out, combine),
        _ => store::<L, 8>(product::<L, 8>(columns, x, row), out, combine),
    }
}

#[inline(always)]
fn store<L: Lanes, const M: usize>(
    sums: [L::Floats; M],
    out: &mut [[f32; LANES]],
    combine: impl Fn(L::Floats, &[f32; LANES]) -> L::Floats,
) {
    for (sum, out) in sums.into_iter().zip(out) {
        L::store(combine(sum, out), out);
    }
}

/// Sixteen columns of `M` rows. Columns of weights are added in order whatever `M` is, so a row's result does not depend
/// on it.
#[inline(never)]
fn product<L: Lanes, const M: usize>(columns: &[[f32; LANES]], x: &Columns, row: usize) -> [L::Floats; M] {
    let mut sums = [L::splat(0.0); M];
    for (tile, columns) in columns.as_chunks::<LANES>().0.iter().enumerate() {
        let x: &[[f32; LANES]; M] = x.tile(tile)[row..].first_chunk().expect("a tile's rows lie inside of the matrix");
        for (column, weights) in columns.iter().enumerate() {
            let weights = L::load(weights);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = L::mul_add(weights, L::splat(x[column]), *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::{Native, Portable};
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        let mut random = StdRng::seed_from_u64(5);
        for (rows, inputs, outputs) in [(1, 16, 16), (7, 32, 20), (19, 64, 48), (8, 16, 1)] {
            let mut x = Columns::default();
            x.reshape(rows, inputs);
            x.tiles_mut().as_flattened_mut().iter_mut().for_each(|value| *value = random.random_range(-2.0..2.0));
            let weights: Vec<f32> = (0..inputs * outputs).map(|_| random.random_range(-2.0..2.0)).collect();
            let matrix = FloatLinear::pack(&weights, inputs);
            let (mut once, mut twice, mut portable) = (Columns::default(), Columns::default(), Columns::default());
            matrix.forward::<Native>(&Team::new(2), &x, &mut once);
            matrix.forward::<Native>(&Team::new(1), &x, &mut twice);
            matrix.add_to::<Native>(&Team::new(2), &x, &mut twice);
            matrix.forward::<Portable>(&Team::new(1), &x, &mut portable);
            for row in 0..rows {
                for output in 0..outputs {
                    let at = |columns: &Columns| columns.tile(output / LANES)[row][output % LANES];
                    let product = |k: usize| {
                        f64::from(x.tile(k / LANES)[row][k % LANES]) * f64::from(weights[output * inputs + k])
                    };
                    let exact: f64 = (0..inputs).map(product).sum();
                    assert!((f64::from(at(&once)) - exact).abs() < 1e-4, "{rows}x{inputs}x{outputs}");
                    assert_eq!(at(&twice), 2.0 * at(&once));
                    assert_eq!(at(&portable).to_bits(), at(&once).to_bits());
                }
            }
        }
    }
}
