//! Tests of `lanes`.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Every operation of `L` gives the bits of [`Portable`]'s.
fn check<L: Lanes>() {
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..1000 {
        check_floats::<L>(&mut random);
        check_bytes::<L>(&mut random);
    }
}

fn floats<L: Lanes>(value: L::Floats) -> [u32; LANES] {
    let mut lanes = [0.0; LANES];
    L::store(value, &mut lanes);
    lanes.map(f32::to_bits)
}

fn same<L: Lanes>(what: &str, got: L::Floats, expected: [f32; LANES]) {
    assert_eq!(floats::<L>(got), floats::<Portable>(expected), "{what}");
}

fn check_floats<L: Lanes>(random: &mut StdRng) {
    let [a, b, c]: [[f32; LANES]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| random.random_range(-9.0..9.0)));
    let [x, y, z] = [a, b, c].map(|lanes| L::load(&lanes));
    same::<L>("splat", L::splat(a[0]), Portable::splat(a[0]));
    same::<L>("add", L::add(x, y), Portable::add(a, b));
    same::<L>("sub", L::sub(x, y), Portable::sub(a, b));
    same::<L>("mul", L::mul(x, y), Portable::mul(a, b));
    same::<L>("div", L::div(x, y), Portable::div(a, b));
    same::<L>("mul_add", L::mul_add(x, y, z), Portable::mul_add(a, b, c));
    same::<L>("max", L::max(x, y), Portable::max(a, b));
    same::<L>("abs", L::abs(x), Portable::abs(a));
    same::<L>("round", L::round(x), Portable::round(a));
    same::<L>("exp2", L::exp2(L::round(x)), Portable::exp2(Portable::round(a)));
    let halves = Portable::narrow(a);
    assert_eq!(L::narrow(x), halves, "narrow");
    same::<L>("widen", L::widen(&halves), Portable::widen(&halves));
    for count in 0..=LANES {
        same::<L>("keep_first", L::keep_first(x, count, y), Portable::keep_first(a, count, b));
    }
    assert_eq!(L::sum(x).to_bits(), Portable::sum(a).to_bits(), "sum");
    assert_eq!(L::largest(x), a.into_iter().fold(f32::MIN, f32::max), "largest");
    let steps = a.map(|value| value * 14.0);
    assert_eq!(L::round_to_i8(L::load(&steps)), Portable::round_to_i8(steps), "round_to_i8");
}

fn check_bytes<L: Lanes>(random: &mut StdRng) {
    let bytes: [u8; 4 * LANES] = std::array::from_fn(|_| random.random());
    let (word, loaded) = (random.random(), L::load_bytes(&bytes));
    let same = |what, got, expected| {
        let got = floats::<L>(L::to_floats(L::add_ints(got, L::no_ints())));
        assert_eq!(got, floats::<Portable>(Portable::to_floats(expected)), "{what}");
    };
    let [zero, low, high] = [[0; LANES], [1; LANES], [2; LANES]];
    same("dot_bytes", L::dot_bytes(L::no_ints(), loaded, word), Portable::dot_bytes(zero, bytes, word));
    let nibbles = L::dot_small(L::no_ints(), L::low_nibbles(loaded), word);
    same("low", nibbles, Portable::dot_small(zero, Portable::low_nibbles(bytes), word));
    let nibbles = L::dot_small(L::no_ints(), L::high_nibbles(loaded), word);
    same("high", nibbles, Portable::dot_small(zero, Portable::high_nibbles(bytes), word));
    let fives = L::set_fifth::<5>(L::set_fifth::<2>(L::low_nibbles(loaded), loaded), loaded);
    let expected = Portable::low_nibbles(bytes);
    let expected = Portable::set_fifth::<5>(Portable::set_fifth::<2>(expected, bytes), bytes);
    same("fifth", L::dot_small(L::no_ints(), fives, word), Portable::dot_small(zero, expected, word));
    assert_eq!(Portable::add_ints(low, high), [3; LANES]);
}

const EXTREMES: [(u8, i8); 3] = [(255, i8::MIN), (255, i8::MAX), (128, i8::MIN)];

/// The largest products that there are: no sum on the way may saturate.
fn check_extremes<L: Lanes>() {
    for (byte, signed) in EXTREMES {
        let word = i32::from_le_bytes([signed.cast_unsigned(); 4]);
        let dot = L::to_floats(L::dot_bytes(L::no_ints(), L::load_bytes(&[byte; 4 * LANES]), word));
        let expected = 4 * i32::from(byte) * i32::from(signed);
        assert_eq!(floats::<L>(dot), [(expected as f32).to_bits(); LANES], "{byte} times {signed}");
    }
}

/// Sixteen rows at a time, of any bytes and of the largest.
fn check_matrix_unit<L: Lanes>() {
    let mut random = StdRng::seed_from_u64(2);
    let mut bytes = || (random.random::<u8>(), random.random::<i8>());
    check_dots::<L>(&mut bytes);
    for (byte, signed) in EXTREMES {
        check_dots::<L>(&mut || (byte, signed));
    }
}

fn check_dots<L: Lanes>(bytes: &mut impl FnMut() -> (u8, i8)) {
    let planes: Planes = std::array::from_fn(|_| std::array::from_fn(|_| bytes().0));
    let words = |bytes: &mut dyn FnMut() -> (u8, i8)| {
        std::array::from_fn(|_| i32::from_le_bytes(std::array::from_fn(|_| bytes().1.cast_unsigned())))
    };
    let rows = std::array::from_fn(|_| QuantBlock { words: words(bytes), scale: f32::NAN, sum: f32::NAN });
    let mut dots = [[i32::MAX; LANES]; LANES];
    L::prepare_matrix_unit();
    L::dot_block(&rows, &planes, &mut dots);
    for (row, dots) in rows.iter().zip(&dots) {
        let mut expected = L::no_ints();
        for (plane, word) in planes.iter().zip(row.words) {
            let mut stored = [0; 4 * LANES];
            L::store_bytes(L::load_bytes(plane), &mut stored);
            expected = L::dot_bytes(expected, L::load_bytes(&stored), word);
        }
        assert_eq!(floats::<L>(L::to_floats(L::load_ints(dots))), floats::<L>(L::to_floats(expected)));
    }
}

fn check_backend<L: Lanes>() {
    L::vectorise(check::<L>);
    L::vectorise(check_extremes::<L>);
    L::vectorise(check_matrix_unit::<L>);
}

#[test]
fn every_backend_is_portable() {
    with_every_backend!(check_backend);
}

#[test]
fn a_backend_that_the_machine_lacks_is_refused() {
    #[cfg(target_arch = "x86_64")]
    for (is_supported, run) in [
        (avx2::AvxVnni::is_supported(), (|| avx2::AvxVnni::vectorise(|| ())) as fn()),
        (avx512::Avx512::is_supported(), || avx512::Avx512::vectorise(|| ())),
        (avx512::Amx::is_supported(), || avx512::Amx::vectorise(|| ())),
    ] {
        assert_eq!(std::panic::catch_unwind(run).is_ok(), is_supported);
    }
}
