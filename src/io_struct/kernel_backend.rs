//! The instruction sets for which there are kernels.

use serde::{Deserialize, Serialize};

/// What the kernels of a forward pass are compiled for, from the slowest to the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
pub enum KernelBackend {
    /// Whatever the compiler makes of plain arrays.
    #[value(name = "portable")]
    Portable,
    /// AVX2 with FMA and F16C.
    #[value(name = "avx2")]
    Avx2,
    /// AVX2 with the integer product of AVX-VNNI.
    #[value(name = "avx-vnni")]
    AvxVnni,
    /// AVX-512 F, BW and VL with VNNI.
    #[value(name = "avx512-vnni")]
    Avx512Vnni,
    /// The same with the matrix unit AMX for bytes.
    #[value(name = "amx-int8")]
    AmxInt8,
}

impl KernelBackend {
    /// From the slowest to the fastest.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni, Self::AmxInt8];

    /// As the command line, logs and metrics name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::AmxInt8 => "amx-int8",
        }
    }
}
