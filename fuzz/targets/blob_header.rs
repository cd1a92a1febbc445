#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forklift::store::fuzzing::blob_header(input));
