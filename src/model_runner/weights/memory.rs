//! Whether the KV pool can fit at all. Its memory is taken lazily, so a pool that is too large would start, serve for a
//! while, and then be killed.

use super::LoadError;
use crate::model_runner::PAGE_SIZE;
use crate::model_runner::attention::KvShape;
use crate::model_runner::decoder::DecoderConfig;

/// Refuses a pool that is larger than the machine. Where the system does not tell how large it is, anything goes.
pub(super) fn check_kv_pool(config: &DecoderConfig, tokens: u32) -> Result<(), LoadError> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let pages = u64::from(tokens).div_ceil(PAGE_SIZE as u64);
    let layer = page_bytes(config.kv_shape()).saturating_mul(pages);
    let needed = layer.saturating_mul(config.block_count as u64);
    match total(&meminfo) {
        Some(present) if needed > present => Err(LoadError::KvPool { tokens, needed, present }),
        _ => Ok(()),
    }
}

/// Bytes of a page; no file's numbers are too large for this.
fn page_bytes(shape: KvShape) -> u64 {
    const BEYOND_ALL_MEMORY: usize = 1 << 40;
    let is_beyond = shape.kv_heads * shape.head_dim > BEYOND_ALL_MEMORY;
    if is_beyond { u64::MAX } else { shape.page_bytes() as u64 }
}

/// `MemTotal` of `/proc/meminfo`, in bytes. See proc_meminfo(5).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        assert_eq!(total("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24576 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
    }
}
