//! Tests of what `SET` accepts.

use super::*;

fn of(key: &str, value: &str) -> Result<Settings, String> {
    Settings::from_map(&BTreeMap::from([(key.to_string(), value.to_string())])).map_err(|e| e.to_string())
}

#[test]
fn absurd_values_are_refused() {
    let cases = [
        ("parallelism.default", ["0", "-1", "1025", "two"], "expected a whole number from 1 to 1024"),
        ("block.size", ["0", "-4", "1048577", ""], "expected 'auto' or a number of rows from 1 to 1048576"),
        ("memory.limit", ["0", "1 kb", "63 mb", "1000"], "expected at least 64 mb"),
        ("table.exec.async-lookup.timeout", ["0", "0 s", "0 ms", "0 d"], "expected at least 1 ms"),
        ("execution.checkpointing.interval", ["0", "0 s", "999 us", "1 ns"], "expected at least 1 ms"),
    ];
    for (key, values, why) in cases {
        for value in values {
            assert_eq!(of(key, value).unwrap_err(), format!("SET: option '{key}' = '{value}': {why}"));
        }
    }
    for share in ["0", "-1", "0.95", "nan"] {
        let expect = format!("SET: option 'state.memory-share' = '{share}': expected ");
        assert!(of("state.memory-share", share).unwrap_err().starts_with(&expect), "{share}");
    }
    assert_eq!(of("worker.busy-poll", "200 us").unwrap().busy_poll, Duration::from_micros(200));
    assert_eq!(of("worker.busy-poll", "2 ms").unwrap_err(), "SET: option 'worker.busy-poll' = '2 ms': expected at most 1 ms");
    let capacity = "table.exec.async-lookup.buffer-capacity";
    assert_eq!(of(capacity, "0").unwrap_err(), format!("SET: option '{capacity}' = '0': expected at least 1"));
    assert_eq!(of("state.backend", "Memory").unwrap().state_backend, StateBackend::Memory);
    assert_eq!(of("parallelism.default", " 1024 ").unwrap().shards(), 1024);
    assert_eq!(of("block.size", "1048576").unwrap().block_size, BlockSize::Rows(1 << 20));
    assert_eq!(of("memory.limit", "64 mb").unwrap().memory, Some(ByteSize(64 << 20)));
    assert_eq!(of("execution.checkpointing.interval", "1").unwrap().checkpoint_interval, Duration::from_millis(1));
    assert!(of("paralelism.default", "2").unwrap_err().contains("did you mean 'parallelism.default'?"));
}
