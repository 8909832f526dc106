//! `fuzz/run gguf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::gguf(data));
