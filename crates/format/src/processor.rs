//! What the processor can do.

/// Whether it has what functions called `…_wide` are compiled for: nearly all since 2013.
#[cfg(target_arch = "x86_64")]
pub(crate) fn wide() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Whether it has what functions called `…_widest` are compiled for: most servers since 2019.
#[cfg(target_arch = "x86_64")]
pub(crate) fn widest() -> bool {
    wide() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi2")
}
