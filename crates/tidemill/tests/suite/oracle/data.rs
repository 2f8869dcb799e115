//! Random rows of the one table that all random jobs read.

use std::collections::HashSet;

use super::random::Random;

/// The columns of `events`.
pub const COLUMNS: &str = "id BIGINT, k STRING, g INT, x BIGINT, y DOUBLE, t TIMESTAMP(3), WATERMARK FOR t AS t - INTERVAL '5' SECOND";

/// How much earlier than a row before it a row may be. With up to a second for rounding and some for
/// making times distinct it is less than the delay of the watermark, so no row is late.
const DISORDER_MS_MAX: i64 = 3000;

/// Lines of CSV. With `ties` rows may be of the same time; without, no two are.
pub fn rows(random: &mut Random, ties: bool) -> Vec<String> {
    let count = match random.between(0, 9) {
        0 => random.between(0, 3),
        1..=6 => random.between(4, 80),
        _ => random.between(81, 300),
    };
    let day = random.pick(&["2024-02-29", "1969-12-31", "2000-01-01"]);
    let keys: &[&str] = if random.chance(30) { &["a", "b"] } else { &["a", "bb", "Ccc", "ä ö", "d,e", "", "q\"q"] };
    let step = random.pick(&[&1i64, &20, &300, &1500]);
    let disorder = random.pick(&[&0i64, &50, &1000, &DISORDER_MS_MAX]);
    // Coarse times fall on the edges of windows and of one another.
    let grain = random.pick(&[&1i64, &100, &500, &1000]);
    let nulls = random.pick(&[&0u64, &10, &40]);
    // Five o'clock in the morning: nothing leaves the day.
    let mut clock = 5 * 3_600_000i64;
    let mut seen = HashSet::new();
    (1..=count)
        .map(|id| {
            clock += random.between(0, 2 * step);
            if random.chance(1) {
                clock += random.between(5_000, 60_000);
            }
            let mut t = clock - random.between(0, *disorder);
            t -= t % grain;
            while !ties && !seen.insert(t) {
                t += 1;
            }
            let k = if random.chance(*nulls) { "NULL".to_string() } else { format!("\"{}\"", random.pick(keys).replace('"', "\"\"")) };
            let g = random.between(-3, 3);
            let x = if random.chance(*nulls) { "NULL".to_string() } else { random.between(-1000, 1000).to_string() };
            let y = match random.between(0, 99) {
                n if n < *nulls as i64 => "NULL".to_string(),
                n if n % 3 == 0 => format!("{}.{}", random.between(0, 20), random.between(1, 9)),
                _ => format!("{:?}", random.between(-400, 400) as f64 / 4.0),
            };
            format!("{id},{k},{g},{x},{y},{day} {}", time_of_day(t))
        })
        .collect()
}

fn time_of_day(ms: i64) -> String {
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}
