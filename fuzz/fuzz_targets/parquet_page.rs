//! A page of texts of a Parquet file, as it is when it is unpacked: it is refused, or its texts are sound.
//!
//! The first bytes say of which kind it is, how many values it has, and how many are taken at once.

#![no_main]

use arrow::array::Array;
use libfuzzer_sys::fuzz_target;
use tidemill_format::parquet::texts_of_page;

fuzz_target!(|data: &[u8]| {
    for texts in texts_of_page(data).into_iter().flatten() {
        texts.to_data().validate_full().expect("sound texts");
    }
});
