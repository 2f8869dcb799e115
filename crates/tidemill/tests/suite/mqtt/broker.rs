//! A broker of a test's own: mosquitto, of Debian's package of that name, with its files in a scratch directory and a port
//! that nobody else has.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::databases::{installed, missing};
use crate::harness::{Background, Scratch, free_port, text, wait_for};

/// The user that a broker with passwords knows.
pub const USER: &str = "ann";
/// And the password.
pub const PASSWORD: &str = "open-sesame-4711";

/// A program of the package, which may lie where only root looks.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.exists()))
}

/// The broker's program; that there is none is said.
fn mosquitto() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        installed("mosquitto", || program("mosquitto").is_some());
        program("mosquitto")
    });
    if found.is_none() {
        missing("MQTT", "mosquitto");
    }
    found.as_deref()
}

/// A broker, ended when dropped.
pub struct Broker {
    /// Before its files.
    process: Option<Background>,
    program: &'static Path,
    scratch: Scratch,
    port: u16,
}

impl Broker {
    /// A new broker that answers, which keeps sessions over its restarts; none where there is no mosquitto, which is said.
    /// `passwords`: it lets in nobody but [`USER`].
    pub fn start(name: &str, passwords: bool) -> Option<Self> {
        let program = mosquitto()?;
        let mut broker = Broker { process: None, program, scratch: Scratch::new(name), port: free_port() };
        broker.configure(passwords);
        broker.again();
        Some(broker)
    }

    fn configure(&self, passwords: bool) {
        let entry = if passwords {
            let file = self.scratch.at("passwords");
            let tool = program("mosquitto_passwd").expect("it comes with the broker");
            let made = Command::new(tool).args(["-b", "-c", &file, USER, PASSWORD]).output().expect("mosquitto_passwd");
            assert!(made.status.success(), "mosquitto_passwd: {}", text(&made));
            format!("allow_anonymous false\npassword_file {file}\n")
        } else {
            "allow_anonymous true\n".to_string()
        };
        // Without a bound on what waits for who is away; as root it stays root, whose the directory is.
        let configuration = format!(
            "listener {} 127.0.0.1\n{entry}user root\npersistence true\npersistence_location {}/\nmax_queued_messages 0\nlog_dest file {}\n",
            self.port,
            self.scratch.path().display(),
            self.scratch.at("log")
        );
        self.scratch.write("mosquitto.conf", configuration);
    }

    /// Starts it on what it has, and waits until it listens.
    pub fn again(&mut self) {
        let process = Background::start(Command::new(self.program).args(["-c", &self.scratch.at("mosquitto.conf")]));
        self.process = Some(process);
        wait_for("mosquitto to listen", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Ends it in good order: it writes down what it has.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            process.end();
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// The options of a table that is read or written here.
    pub fn with(&self, topic: &str, format: &str, more: &str) -> String {
        // A start may have to wait on a machine that has more to do.
        let timeout = "'connect.timeout' = '120 s'";
        format!("WITH ('connector' = 'mqtt', 'url' = '{}', 'topic' = '{topic}', 'format' = '{format}', {timeout}{more})", self.url())
    }
}
