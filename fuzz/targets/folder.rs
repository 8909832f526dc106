//! `fuzz/run folder`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::folder(data));
