//! Tests of `packed`.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::{Native, Portable};
use super::*;

const INPUTS: usize = 96;
const OUTPUTS: usize = 64;

fn linear(random: &mut StdRng, nibbles: Nibbles) -> PackedLinear {
    let count = INPUTS / BLOCK * OUTPUTS / LANES;
    let scale = |random: &mut StdRng| std::array::from_fn(|_| f16::from_f32(random.random_range(0.001..0.1)).to_bits());
    let min = |random: &mut StdRng| std::array::from_fn(|_| f16::from_f32(random.random_range(-1.0..0.1)).to_bits());
    let tiles = match nibbles {
        Nibbles::Yes => Tiles::Nibbles(
            (0..count)
                .map(|_| NibbleTile { planes: random.random::<Planes<4>>().0, scale: scale(random), min: min(random) })
                .collect(),
        ),
        Nibbles::No => Tiles::Bytes(
            (0..count)
                .map(|_| ByteTile { planes: random.random::<Planes<8>>().0, scale: scale(random), min: min(random) })
                .collect(),
        ),
    };
    PackedLinear { inputs: INPUTS, outputs: OUTPUTS, tiles }
}

#[derive(Clone, Copy, Debug)]
enum Nibbles {
    Yes,
    No,
}

struct Planes<const N: usize>([[u8; 4 * LANES]; N]);

impl<const N: usize> rand::distr::Distribution<Planes<N>> for rand::distr::StandardUniform {
    fn sample<R: Rng + ?Sized>(&self, random: &mut R) -> Planes<N> {
        Planes(std::array::from_fn(|_| std::array::from_fn(|_| random.random())))
    }
}

fn activations(random: &mut StdRng, rows: usize) -> Activations {
    let mut x = Activations::default();
    x.reshape(rows, INPUTS);
    for block in x.blocks_mut() {
        let mut half = || std::array::from_fn(|_| random.random_range(-3.0..3.0));
        *block = QuantBlock::quantise::<Portable>(half(), half());
    }
    x
}

/// What the bytes of one row stand for.
fn floats(x: &Activations, row: usize) -> Vec<f64> {
    let blocks = (0..INPUTS / BLOCK).map(|block| x.block::<1>(block, row)[0]);
    let values = blocks.flat_map(|block| {
        let bytes = block.words.into_iter().flat_map(i32::to_le_bytes).map(u8::cast_signed);
        bytes.map(move |byte| f64::from(byte) * f64::from(block.scale))
    });
    values.collect()
}

fn bits(columns: &Columns, tiles: usize) -> Vec<[u32; LANES]> {
    (0..tiles).flat_map(|tile| columns.tile(tile).iter().map(|lanes| lanes.map(f32::to_bits))).collect()
}

#[test]
fn a_product_is_the_sum_of_its_products() {
    let mut random = StdRng::seed_from_u64(3);
    for nibbles in [Nibbles::Yes, Nibbles::No] {
        let (matrix, x, mut out) = (linear(&mut random, nibbles), activations(&mut random, 11), Columns::default());
        matrix.forward::<Native>(&Team::new(2), &x, &mut out);
        let mut weights = vec![0.0; INPUTS];
        for output in 0..OUTPUTS {
            matrix.row(output, &mut weights);
            for row in 0..x.rows() {
                let products = floats(&x, row).into_iter().zip(&weights).map(|(x, weight)| x * f64::from(*weight));
                let (exact, size) =
                    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
                let got = f64::from(out.tile(output / LANES)[row][output % LANES]);
                assert!((got - exact).abs() < 1e-5 * size, "{nibbles:?} ({row}, {output}): {got}, not {exact}");
            }
        }
    }
}

/// Backends, batch sizes, threads and what was in the output before make no difference to a single bit.
#[test]
fn a_row_depends_on_nothing_else() {
    let mut random = StdRng::seed_from_u64(4);
    for nibbles in [Nibbles::Yes, Nibbles::No] {
        let (matrix, all) = (linear(&mut random, nibbles), activations(&mut random, 21));
        let mut expected = Columns::default();
        matrix.forward::<Portable>(&Team::new(1), &all, &mut expected);
        let mut native = Columns::default();
        matrix.forward::<Native>(&Team::new(3), &all, &mut native);
        assert_eq!(bits(&native, OUTPUTS / LANES), bits(&expected, OUTPUTS / LANES), "{nibbles:?}");
        for rows in 1..=9 {
            let mut some = Activations::default();
            some.reshape(rows, INPUTS);
            for (block, to) in some.blocks_mut().chunks_exact_mut(rows).enumerate() {
                to.iter_mut().enumerate().for_each(|(row, to)| *to = all.block::<1>(block, row + 5)[0]);
            }
            matrix.forward::<Native>(&Team::new(2), &some, &mut native);
            for tile in 0..OUTPUTS / LANES {
                assert_eq!(native.tile(tile), &expected.tile(tile)[5..5 + rows], "{nibbles:?}, {rows} rows");
            }
        }
    }
}

#[test]
fn add_to_adds() {
    let mut random = StdRng::seed_from_u64(5);
    let (matrix, x) = (linear(&mut random, Nibbles::Yes), activations(&mut random, 3));
    let (mut plain, mut sum) = (Columns::default(), Columns::default());
    matrix.forward::<Native>(&Team::new(1), &x, &mut plain);
    sum.reshape(3, OUTPUTS);
    sum.tiles_mut().fill([2.5; LANES]);
    matrix.add_to::<Native>(&Team::new(1), &x, &mut sum);
    for tile in 0..OUTPUTS / LANES {
        let expected: Vec<_> = plain.tile(tile).iter().map(|lanes| lanes.map(|lane| 2.5 + lane)).collect();
        assert_eq!(sum.tile(tile), expected);
    }
}

#[test]
fn gated_is_both_products_and_the_gate() {
    let mut random = StdRng::seed_from_u64(6);
    let (gate, up) = (linear(&mut random, Nibbles::Yes), linear(&mut random, Nibbles::No));
    let (x, team, mut out) = (activations(&mut random, 13), Team::new(2), Activations::default());
    gated::<Native>(&team, &gate, &up, &x, &mut out);
    let (mut gates, mut ups) = (Columns::default(), Columns::default());
    gate.forward::<Portable>(&team, &x, &mut gates);
    up.forward::<Portable>(&team, &x, &mut ups);
    for block in 0..OUTPUTS / BLOCK {
        for row in 0..x.rows() {
            let half = |half| silu_gate::<Portable>(gates.tile(2 * block + half)[row], ups.tile(2 * block + half)[row]);
            let expected = QuantBlock::quantise::<Portable>(half(0), half(1));
            assert_eq!(out.block::<1>(block, row), &[expected], "block {block}, row {row}");
        }
    }
}
