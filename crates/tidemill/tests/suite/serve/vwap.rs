//! The VWAP job fed through an adapter: what the connector gives, for each block size.

use crate::harness::{Scratch, finish, root, sink_lines, text, tidemill};

use super::server::Server;

const TRADES: usize = 20_000;

#[test]
fn an_adapter_gives_what_a_connector_gives() {
    let scratch = Scratch::new("serve-vwap");
    let (trades, reference) = (scratch.at("trades"), scratch.at("reference"));
    let run = |job: &str, defines: &[String]| {
        // One shard writes one file: an adapter publishes files one after the other.
        let output = finish(tidemill().current_dir(root()).args(["run", job, "--quiet", "--parallelism", "1"]).args(defines));
        assert!(output.status.success(), "{job}: {}", text(&output));
    };
    run("benches/jobs/trades.sql", &[format!("-DROWS={TRADES}"), format!("-DOUT={trades}")]);
    run("examples/vwap/vwap.sql", &[format!("-DIN={trades}"), format!("-DOUT={reference}")]);
    for block_size in ["1", "16", "auto"] {
        let out = scratch.path().join(format!("out-{block_size}"));
        let state = scratch.at(&format!("state-{block_size}"));
        let job = root().join("examples/vwap/served.sql").display().to_string();
        let define = format!("OUT={}", out.display());
        let server = Server::start(&scratch, &[&job, "-D", &define, "--state-dir", &state]);
        let from = format!("connector=filesystem,path={trades},format=csv");
        let to = format!("flight://{}/trades", server.address);
        let output = finish(tidemill().args(["adapter", "--from", &from, "--to", &to, "--block-size", block_size]));
        assert!(output.status.success(), "{}", text(&output));
        // It ends when the rows are acknowledged: what came of them is committed.
        let costs = sink_lines(&out.join("costs"));
        assert_eq!(costs, sink_lines(&scratch.path().join("reference/costs")), "block size {block_size}");
        for sink in ["vwap_5m", "vwap_1h", "vwap_24h"] {
            let (found, all) = (sink_lines(&out.join(sink)), sink_lines(&scratch.path().join("reference").join(sink)));
            // A stream has no end, so the trades of its last second still wait for their watermark.
            assert!(found.len() > TRADES - 500, "{sink}, block size {block_size}: {} rows", found.len());
            let mut rest = all.iter();
            let missing = found.iter().find(|line| !rest.any(|other| other == *line));
            assert_eq!(missing, None, "{sink}, block size {block_size}");
        }
    }
}
