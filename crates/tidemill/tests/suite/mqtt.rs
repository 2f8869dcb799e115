//! The connector `mqtt` against a real broker, which is restarted, too: messages there and back in every format, jobs that
//! are killed, and what goes wrong.
//!
//! The broker is mosquitto, of Debian's package of that name; where it is missing the tests say that they did not run. With
//! `DATABASE_INSTALL=1`, as `make test` has it, root has it installed first.

mod broker;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use broker::{Broker, PASSWORD, USER};

use crate::crash::Random;
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, fold_changes, free_port, root, sink_lines, text, tidemill, wait_for};

/// Checkpoints come often, so that files are seen soon.
const OFTEN: &str = "SET 'execution.checkpointing.interval' = '200 ms';\n";

fn run(scratch: &Scratch, sql: &str) -> Output {
    finish(tidemill().args(["run", &scratch.write("run.sql", sql), "--quiet", "--parallelism", "1"]))
}

#[track_caller]
fn runs(scratch: &Scratch, sql: &str) {
    let output = run(scratch, sql);
    assert!(output.status.success(), "{sql}\n{}", text(&output));
}

/// Starts a job that does not end by itself.
fn start(scratch: &Scratch, sql: &str) -> Background {
    let (job, state) = (scratch.write("job.sql", sql), scratch.at("state"));
    Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1", "--state-dir", &state]))
}

/// Ends a job in good order; gives what it said.
#[track_caller]
fn stop(mut job: Background) -> String {
    job.signal("INT");
    let (code, errors) = job.end();
    assert_eq!(code, Some(0), "{errors}");
    errors
}

/// A table over a CSV file with these lines, which begin with a topic.
fn lines(scratch: &Scratch, columns: &str, lines: &str) -> String {
    let path = scratch.write("in.csv", lines);
    format!("CREATE TABLE source (topic STRING, {columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');\n")
}

/// Publishes texts as they are: topic and message, in CSV. They are retained, so that who subscribes later gets them, too.
fn publish(broker: &Broker, messages: &str) {
    let scratch = Scratch::new("mqtt-publish");
    let with = broker.with("", "raw", ", 'sink.retain' = 'true'").replace("'topic' = '', ", "");
    runs(
        &scratch,
        &format!(
            "{}CREATE TABLE target (message STRING, topic STRING METADATA) {with};\nINSERT INTO target SELECT message, topic FROM source;\n",
            lines(&scratch, "message STRING", messages)
        ),
    );
}

/// A job that writes messages' numbers into the directory `out`.
fn numbers(scratch: &Scratch, broker: &Broker, topic: &str, more: &str) -> String {
    format!(
        "{OFTEN}CREATE TABLE messages (id BIGINT) {};\n\
         CREATE TABLE target (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');\n\
         INSERT INTO target SELECT id FROM messages;\n",
        broker.with(topic, "json", more),
        scratch.at("out")
    )
}

/// The numbers in the directory `out`, each once.
fn written(scratch: &Scratch) -> BTreeSet<i64> {
    let lines = sink_lines(Path::new(&scratch.at("out")));
    lines.iter().map(|line| line.parse().expect("a number")).collect()
}

/// A job that publishes the numbers `from` up to `to`, in order.
fn publisher(scratch: &Scratch, broker: &Broker, topic: &str, from: i64, to: i64) -> String {
    let text: String = (from..to).map(|n| format!("{n}\n")).collect();
    let path = scratch.write("in.csv", text);
    format!(
        "CREATE TABLE source (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');\n\
         CREATE TABLE target (id BIGINT) {};\nINSERT INTO target SELECT id FROM source;\n",
        broker.with(topic, "json", "")
    )
}

#[test]
fn formats_there_and_back() {
    let Some(broker) = Broker::start("mqtt-formats", false) else { return };
    for (format, out) in [("json", "csv"), ("csv", "csv"), ("avro", "csv"), ("debezium-json", "debezium-json")] {
        let scratch = Scratch::new(&format!("mqtt-{format}"));
        let input: String = (0..50).map(|n| format!("f/{format}/{n},{n},n{n}\n")).collect();
        let with = broker.with("", format, ", 'sink.retain' = 'true'").replace("'topic' = '', ", "");
        let write = format!(
            "{}CREATE TABLE target (id BIGINT, topic STRING METADATA, name STRING) {with};\n\
             INSERT INTO target SELECT id, topic, name FROM source;\n",
            lines(&scratch, "id BIGINT, name STRING", &input)
        );
        runs(&scratch, &write);
        let read = format!(
            "{OFTEN}CREATE TABLE messages (id BIGINT, name STRING, topic STRING METADATA VIRTUAL, retained BOOLEAN METADATA VIRTUAL) {};\n\
             CREATE TABLE target (topic STRING, id BIGINT, name STRING, retained BOOLEAN)\n\
             WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = '{out}');\n\
             INSERT INTO target SELECT topic, id, name, retained FROM messages;\n",
            broker.with(&format!("f/{format}/+"), format, ""),
            scratch.at("out")
        );
        let job = start(&scratch, &read);
        let found = || sink_lines(Path::new(&scratch.at("out")));
        wait_for("all messages", || found().len() >= 50);
        let mut expected: Vec<String> = (0..50).map(|n| format!("f/{format}/{n},{n},n{n},true")).collect();
        expected.sort();
        if out == "csv" {
            assert_eq!(found(), expected);
        } else {
            assert_eq!(fold_changes(&found()).len(), 50);
            assert!(found().iter().all(|line| line.contains("\"retained\":true")), "{:?}", found());
        }
        stop(job);
    }
}

#[test]
fn raw_messages_and_those_without_content() {
    let Some(broker) = Broker::start("mqtt-raw", false) else { return };
    publish(&broker, "r/a,alpha\nr/b,beta\n");
    // A retained message without content takes the one before away.
    publish(&broker, "r/a,\"\"\n");
    let scratch = Scratch::new("mqtt-raw-job");
    let sql = format!(
        "{OFTEN}CREATE TABLE messages (message STRING, topic STRING METADATA VIRTUAL) {};\n\
         CREATE TABLE target (topic STRING, message STRING) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');\n\
         INSERT INTO target SELECT topic, message FROM messages;\n",
        broker.with("r/#", "raw", ""),
        scratch.at("out")
    );
    let job = start(&scratch, &sql);
    let found = || sink_lines(Path::new(&scratch.at("out")));
    wait_for("the message", || !found().is_empty());
    publish(&broker, "r/c,gamma\n");
    wait_for("the next one", || found().len() >= 2);
    assert_eq!(found(), ["r/b,beta", "r/c,gamma"]);
    stop(job);
}

/// Messages that come while a job is killed, or not there at all, are in the broker's session: none is lost. Some may come
/// twice: those of a checkpoint whose acknowledgements did not go out.
#[test]
fn nothing_is_lost_when_jobs_are_killed() {
    const KILLS: i64 = 5;
    const CHUNK: i64 = 2_000;
    let Some(broker) = Broker::start("mqtt-kills", false) else { return };
    let (scratch, other) = (Scratch::new("mqtt-kills-job"), Scratch::new("mqtt-kills-publisher"));
    let sql = numbers(&scratch, &broker, "kills/+", ", 'client-id' = 'kills', 'max-inflight' = '500'");
    let mut random = Random(4711);
    publish(&broker, "kills/first,\"{\"\"id\"\":-1}\"\n");
    let first = start(&scratch, &sql);
    wait_for("the subscription", || written(&scratch).contains(&-1));
    let mut job = Some(first);
    for round in 0..KILLS {
        let chunk = publisher(&other, &broker, "kills/more", round * CHUNK, (round + 1) * CHUNK);
        let mut publishing = Background::start(tidemill().args(["run", &other.write("job.sql", chunk), "--quiet"]));
        std::thread::sleep(Duration::from_millis(random.below(600)));
        if let Some(mut job) = job.take() {
            job.signal("KILL");
            job.end();
        }
        let (code, errors) = publishing.end();
        assert_eq!(code, Some(0), "{errors}");
        job = Some(start(&scratch, &sql));
    }
    // Whoever has written this one runs, and can be asked to stop: all others may have been written before it.
    publish(&broker, &format!("kills/last,\"{{\"\"id\"\":{}}}\"\n", KILLS * CHUNK));
    let expected: BTreeSet<i64> = (-1..=KILLS * CHUNK).collect();
    wait_for("all messages", || written(&scratch).len() >= expected.len());
    assert_eq!(written(&scratch), expected);
    stop(job.expect("started above"));
}

#[test]
fn a_broker_that_is_restarted_is_waited_for() {
    let Some(mut broker) = Broker::start("mqtt-restart", false) else { return };
    let (scratch, other) = (Scratch::new("mqtt-restart-job"), Scratch::new("mqtt-restart-publisher"));
    publish(&broker, "restart/first,\"{\"\"id\"\":-1}\"\n");
    let job = start(&scratch, &numbers(&scratch, &broker, "restart/+", ", 'client-id' = 'restart'"));
    wait_for("the subscription", || written(&scratch).contains(&-1));
    // More than go out at once.
    let sql = publisher(&other, &broker, "restart/more", 0, 20_000);
    let mut publishing = Background::start(tidemill().args(["run", &other.write("job.sql", sql), "--quiet"]));
    wait_for("some messages", || written(&scratch).len() > 1);
    broker.stop();
    broker.again();
    let (code, errors) = publishing.end();
    assert_eq!(code, Some(0), "{errors}");
    let expected: BTreeSet<i64> = (-1..20_000).collect();
    wait_for("all messages", || written(&scratch).len() >= expected.len());
    assert_eq!(written(&scratch), expected);
    let said = stop(job);
    assert!(said.contains("connecting again") && said.contains("answers again"), "{said}");
}

#[test]
fn passwords_are_asked_for_and_not_told() {
    let Some(broker) = Broker::start("mqtt-password", true) else { return };
    let scratch = Scratch::new("mqtt-password-job");
    let source = |more: &str| numbers(&scratch, &broker, "p", more);
    let user = format!(", 'username' = '{USER}', 'password'");
    let refused = ["table 'messages'", "connecting to mqtt://127.0.0.1", "refuses the connection"];
    expect(&run(&scratch, &source("")), 1, &refused);
    let output = run(&scratch, &source(&format!("{user} = 'wrong-{PASSWORD}'")));
    expect(&output, 1, &refused);
    assert!(!text(&output).contains(PASSWORD), "{}", text(&output));
    let with = broker.with("p", "json", &format!("{user} = '{PASSWORD}', 'sink.retain' = 'true'"));
    let numbers = lines(&scratch, "id BIGINT", "p,7\n");
    runs(&scratch, &format!("{numbers}CREATE TABLE target (id BIGINT) {with};\nINSERT INTO target SELECT id FROM source;\n"));
    let job = start(&scratch, &source(&format!("{user} = '{PASSWORD}'")));
    wait_for("the message", || written(&scratch).contains(&7));
    stop(job);
}

#[test]
fn malformed_messages_follow_on_error() {
    let Some(broker) = Broker::start("mqtt-malformed", false) else { return };
    publish(&broker, "m/1,\"{\"\"id\"\":1}\"\nm/2,\"{\"\"id\"\":\"\nm/3,\"{\"\"id\"\":3}\"\n");
    let scratch = Scratch::new("mqtt-malformed-fail");
    expect(&run(&scratch, &numbers(&scratch, &broker, "m/+", "")), 1, &["table 'messages'", "m/2 message", "on-error"]);
    let scratch = Scratch::new("mqtt-malformed-skip");
    let job = start(&scratch, &numbers(&scratch, &broker, "m/+", ", 'on-error' = 'skip'"));
    wait_for("the good messages", || written(&scratch).len() >= 2);
    stop(job);
    assert_eq!(written(&scratch), BTreeSet::from([1, 3]));
    let scratch = Scratch::new("mqtt-malformed-dead");
    let dead = format!(
        "CREATE TABLE dead (place STRING, raw STRING) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json');\n",
        scratch.at("dead")
    );
    let sql = numbers(&scratch, &broker, "m/+", ", 'on-error' = 'dead-letter', 'dead-letter' = 'dead'");
    let job = start(&scratch, &sql.replacen("CREATE TABLE", &format!("{dead}CREATE TABLE"), 1));
    let found = || sink_lines(Path::new(&scratch.at("dead")));
    wait_for("the dead letter", || !found().is_empty() && written(&scratch).len() >= 2);
    stop(job);
    assert!(found().len() == 1 && found()[0].contains("m/2 message"), "{:?}", found());
}

#[test]
fn what_is_wrong_is_said_at_the_start() {
    let scratch = Scratch::new("mqtt-wrong");
    let table = |options: &str| {
        format!(
            "CREATE TABLE messages (id BIGINT) WITH ('connector' = 'mqtt', 'url' = 'mqtt://127.0.0.1:{}', 'format' = 'json', {options});\n\
             CREATE TABLE target (id BIGINT) WITH ('connector' = 'print');\nINSERT INTO target SELECT id FROM messages;\n",
            free_port()
        )
    };
    expect(&run(&scratch, &table("'topic' = 'a', 'qos' = '2'")), 2, &["table 'messages'", "option 'qos' = '2'"]);
    expect(&run(&scratch, &table("'topic' = 'a', 'clientid' = 'x'")), 2, &["unknown option 'clientid'", "did you mean 'client-id'?"]);
    expect(&run(&scratch, &table("'topic' = 'a/#/b'")), 2, &["option 'topic'", "'#'"]);
    // Nobody listens there.
    let absent = table("'topic' = 'a', 'connect.timeout' = '300 ms'");
    expect(&run(&scratch, &absent), 1, &["table 'messages'", "connecting to mqtt://127.0.0.1", "'connect.timeout'"]);
}

/// The job of the examples: readings of sensors come in, alarms go out.
#[test]
fn the_example() {
    let Some(broker) = Broker::start("mqtt-example", false) else { return };
    let state = Scratch::new("mqtt-example-state");
    let example = root().join("examples/mqtt/alarms.sql");
    publish(&broker, "sensors/boiler/temperature,\"{\"\"celsius\"\":91.5}\"\nsensors/hall/temperature,\"{\"\"celsius\"\":20.25}\"\n");
    let mut command = tidemill();
    command.arg("run").arg(example).args(["--quiet", "-D", &format!("URL={}", broker.url()), "--state-dir", &state.at("state")]);
    let job = Background::start(&mut command);
    let scratch = Scratch::new("mqtt-example-alarms");
    let sql = format!(
        "{OFTEN}CREATE TABLE alarms (celsius DOUBLE, topic STRING METADATA VIRTUAL) {};\n\
         CREATE TABLE target (topic STRING, celsius DOUBLE) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');\n\
         INSERT INTO target SELECT topic, celsius FROM alarms;\n",
        broker.with("alarms/+", "json", ""),
        scratch.at("out")
    );
    let listening = start(&scratch, &sql);
    let found = || sink_lines(Path::new(&scratch.at("out")));
    wait_for("an alarm", || !found().is_empty());
    publish(&broker, "sensors/oven/temperature,\"{\"\"celsius\"\":200.0}\"\n");
    wait_for("the next one", || found().len() >= 2);
    assert_eq!(found(), ["alarms/boiler,91.5", "alarms/oven,200.0"]);
    stop(job);
    stop(listening);
}
