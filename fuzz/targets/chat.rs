//! `fuzz/run chat`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::chat(data));
