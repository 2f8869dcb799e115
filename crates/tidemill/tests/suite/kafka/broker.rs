//! A Kafka broker of a test's own: one node in KRaft mode on loopback, from jars of Maven Central.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{Background, Scratch, free_port, root, wait_for};
use crate::kafka::client::Client;
use crate::not_run::not_run;

/// Any id of 16 bytes will do.
const CLUSTER: &str = "dGlkZW1pbGx0ZXN0c19fMQ";

/// The directory of the broker's jars, or why there is none. KAFKA_JARS may name one.
fn jars() -> Option<&'static Path> {
    static JARS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let fetch = || {
        let kept = std::env::var_os("KAFKA_JARS").map(PathBuf::from);
        let directory = kept.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("kafka-jars"));
        let java = Command::new("java").arg("-version").stdin(Stdio::null()).output();
        java.map_err(|e| format!("java: {e}"))?;
        // The mark is made last: a fetch that was cut off begins anew.
        let mark = directory.join("complete");
        if !mark.exists() && std::env::var_os("KAFKA_JARS").is_none() {
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", "--file"]).arg(root().join("tests/kafka/pom.xml"));
            maven.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", directory.display()));
            maven.arg("-DincludeScope=runtime").stdin(Stdio::null());
            let output = maven.output().map_err(|e| format!("mvn: {e}"))?;
            if !output.status.success() {
                return Err(format!("mvn: {}", String::from_utf8_lossy(&output.stdout)));
            }
            std::fs::write(mark, "").map_err(|e| e.to_string())?;
        }
        Ok(directory)
    };
    match JARS.get_or_init(fetch) {
        Ok(directory) => Some(directory),
        Err(why) => {
            not_run(&format!("tests over Kafka (no Java 17, Maven or network): {why}"));
            None
        }
    }
}

/// Whom a broker's second listener lets in: `writer` with the password `secret`.
pub struct Guard<'a> {
    /// `SASL_PLAINTEXT` or `SASL_SSL`.
    pub protocol: &'a str,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: &'a str,
    /// The file with the listener's key and certificate.
    pub keys: &'a str,
}

impl Guard<'_> {
    /// The properties that make the listener.
    fn properties(&self) -> String {
        let Guard { protocol, mechanism, keys } = self;
        if *protocol == "PLAINTEXT" {
            return String::new();
        }
        let login = match *mechanism {
            "PLAIN" => "plain.PlainLoginModule required user_writer=\"secret\";",
            _ => "scram.ScramLoginModule required;",
        };
        let name = mechanism.to_lowercase();
        let mut all = format!(
            "sasl.enabled.mechanisms={mechanism}\nlistener.name.guarded.{name}.sasl.jaas.config=org.apache.kafka.common.security.{login}\n"
        );
        if *protocol == "SASL_SSL" {
            all += &format!("listener.name.guarded.ssl.keystore.type=PEM\nlistener.name.guarded.ssl.keystore.location={keys}\n");
        }
        all
    }
}

/// A broker, killed when dropped.
pub struct Broker {
    process: Option<Background>,
    scratch: Scratch,
    port: u16,
    guarded: u16,
}

impl Broker {
    /// A new broker that is ready; none where there is no Java.
    pub fn start(name: &str) -> Option<Self> {
        Self::guarded(name, &Guard { protocol: "PLAINTEXT", mechanism: "PLAIN", keys: "" })
    }

    /// The same with a second listener that lets in only some.
    pub fn guarded(name: &str, guard: &Guard<'_>) -> Option<Self> {
        jars()?;
        let scratch = Scratch::new(name);
        let (port, controller, guarded) = (free_port(), free_port(), free_port());
        let protocol = guard.protocol;
        let mut properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},GUARDED://127.0.0.1:{guarded}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:{protocol}\nlog.dirs={}\n\
             auto.create.topics.enable=false\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=2\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=2\n\
             group.initial.rebalance.delay.ms=0\nnum.io.threads=2\nnum.network.threads=2\n",
            scratch.at("data")
        );
        properties += &guard.properties();
        let properties = scratch.write("server.properties", properties);
        let mut format = java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", CLUSTER, "--config", &properties]);
        if guard.mechanism.starts_with("SCRAM") {
            format.arg("--add-scram").arg(format!("{}=[name=writer,password=secret]", guard.mechanism));
        }
        let formatted = format.output().expect("java ran before");
        assert!(formatted.status.success(), "{}", crate::harness::text(&formatted));
        let mut broker = Broker { process: None, scratch, port, guarded };
        broker.again();
        Some(broker)
    }

    /// `host:port`.
    pub fn servers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `host:port` of the second listener.
    pub fn guarded_servers(&self) -> String {
        format!("127.0.0.1:{}", self.guarded)
    }

    /// Starts it on what it has, and waits until it answers.
    pub fn again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let log = std::fs::File::create(self.scratch.at("broker.log")).expect("a log file");
        let errors = log.try_clone().expect("the log file again");
        let mut command = java("kafka.Kafka");
        command.arg(self.scratch.at("server.properties")).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.process = Some(Background(command.spawn().expect("java ran before")));
        let client = Client::new(&self.servers());
        wait_for("the broker", || {
            let ended = self.process.as_mut().expect("started").0.try_wait().expect("waiting for the broker");
            assert!(ended.is_none(), "{}", std::fs::read_to_string(self.scratch.at("broker.log")).unwrap_or_default());
            client.answers()
        });
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Has it do nothing any more, though its connections stay.
    pub fn hang(&self) {
        self.process.as_ref().expect("it runs").signal("STOP");
    }

    /// Has it go on where it hung.
    pub fn go_on(&self) {
        self.process.as_ref().expect("it runs").signal("CONT");
    }

    /// Ends it in order.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            wait_for("the broker to end", || process.0.try_wait().expect("waiting for the broker").is_some());
        }
    }
}

fn java(class: &str) -> Command {
    let classes = jars().expect("asked for before").join("*");
    let mut command = Command::new("java");
    command.args(["-Xmx400m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
    command.arg("-cp").arg(classes).arg(class);
    command
}
