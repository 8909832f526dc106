//! What the machine can do at most: bytes read from memory, and multiply-adds of bytes, by the kernels' own instruction.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use radiosonde::model_runner::kernels::backend::{WithLanes, detect, with_lanes};
use radiosonde::model_runner::kernels::{LANES, Lanes};

use super::Outcome;

/// Multiply-adds of one repetition, all threads together: about 5 ms of a fast core.
pub const MULTIPLY_ADDS: usize = 1 << 31;

/// Sums that are in the making at a time: enough to hide the latency of an instruction, few enough for the registers.
const SUMS: usize = 12;

type Pass = Box<dyn FnMut() -> Outcome<Duration>>;

/// Sums up a buffer of `mib` MiB, each thread a part of it.
pub fn bandwidth(mib: usize, threads: usize) -> Pass {
    let words = vec![1u64; (mib << 20) / size_of::<u64>()];
    let share = words.len().div_ceil(threads);
    Box::new(move || {
        let began = Instant::now();
        thread::scope(|scope| {
            for part in words.chunks(share) {
                scope.spawn(|| black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word))));
            }
        });
        Ok(began.elapsed())
    })
}

/// Multiplies and adds bytes that are in registers already.
pub fn int8(threads: usize) -> Pass {
    Box::new(move || {
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| with_lanes(detect(), Dots { multiply_adds: MULTIPLY_ADDS / threads }));
            }
        });
        Ok(began.elapsed())
    })
}

/// [`dots`] with the kernels' own instruction.
struct Dots {
    multiply_adds: usize,
}

impl WithLanes for Dots {
    type Output = ();

    fn run<L: Lanes>(self) {
        L::vectorise(
            #[inline(always)]
            || dots::<L>(self.multiply_adds),
        );
    }
}

#[inline(always)]
fn dots<L: Lanes>(multiply_adds: usize) {
    let bytes = L::load_bytes(black_box(&[3; 4 * LANES]));
    let word = black_box(0x0102_0304);
    let mut sums = [L::no_ints(); SUMS];
    for _ in 0..multiply_adds / (4 * LANES * SUMS) {
        for sum in &mut sums {
            *sum = L::dot_bytes(*sum, bytes, word);
        }
    }
    let total = sums.into_iter().fold(L::no_ints(), L::add_ints);
    black_box(L::sum(L::to_floats(total)));
}
