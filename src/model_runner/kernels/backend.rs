//! Which instructions the kernels use, found out when a model is loaded.

#[cfg(target_arch = "x86_64")]
use super::lanes::{avx2, avx512};
use super::{Lanes, Portable};
use crate::io_struct::KernelBackend;

/// A function that is generic over [`Lanes`].
pub trait WithLanes {
    /// What it gives.
    type Output;
    /// The function.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Calls `work` for one backend; for the portable one where the architecture does not know it.
pub fn with_lanes<W: WithLanes>(backend: KernelBackend, work: W) -> W::Output {
    match backend {
        #[cfg(target_arch = "x86_64")]
        KernelBackend::Avx2 => work.run::<avx2::Avx2>(),
        #[cfg(target_arch = "x86_64")]
        KernelBackend::AvxVnni => work.run::<avx2::AvxVnni>(),
        #[cfg(target_arch = "x86_64")]
        KernelBackend::Avx512Vnni => work.run::<avx512::Avx512>(),
        #[cfg(target_arch = "x86_64")]
        KernelBackend::AmxInt8 => work.run::<avx512::Amx>(),
        _ => work.run::<Portable>(),
    }
}

/// All that this machine has, from the slowest to the fastest; never empty.
#[must_use]
pub fn supported() -> Vec<KernelBackend> {
    KernelBackend::ALL.into_iter().filter(|backend| is_supported(*backend)).collect()
}

/// The fastest that this machine has.
#[must_use]
pub fn detect() -> KernelBackend {
    supported().last().copied().unwrap_or(KernelBackend::Portable)
}

/// This machine has the instructions.
#[must_use]
pub fn is_supported(backend: KernelBackend) -> bool {
    struct IsSupported;
    impl WithLanes for IsSupported {
        type Output = bool;
        fn run<L: Lanes>(self) -> bool {
            L::is_supported()
        }
    }
    let exists = backend == KernelBackend::Portable || cfg!(target_arch = "x86_64");
    exists && with_lanes(backend, IsSupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_there_is() {
        let fastest = detect();
        assert!(is_supported(fastest));
        assert!(
            KernelBackend::ALL.into_iter().filter(|backend| *backend > fastest).all(|faster| !is_supported(faster))
        );
        assert_eq!(supported().first(), Some(&KernelBackend::Portable));
    }
}
