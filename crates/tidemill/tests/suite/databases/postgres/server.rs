//! A PostgreSQL server of a test's own, from Debian's package: a new cluster in a scratch directory, on a
//! port of its own, with passwords and, where `openssl` is there, TLS.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::databases::{certificates, installed, is_root, missing};
use crate::harness::{Background, Scratch, free_port, text, wait_for};
use crate::not_run::not_run;

/// The password of the user `postgres`.
pub const PASSWORD: &str = "open-sesame-4711";

/// How long a server that is not needed any more may take to end by itself.
const END_MAX: Duration = Duration::from_secs(30);

/// The newest version's programs, where Debian puts them.
fn newest() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|e| {
            let path = e.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            path.join("bin/initdb").exists().then(|| (version, path.join("bin")))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, path)| path)
}

/// The directory of PostgreSQL's programs; that there is none is said.
fn programs() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        installed("postgresql", || newest().is_some());
        newest()
    });
    if found.is_none() {
        missing("PostgreSQL", "postgresql");
    }
    found.as_deref()
}

/// Has a program run as the user `postgres`, which the package makes: as root PostgreSQL's programs refuse to run.
fn as_postgres() -> Command {
    let there = |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if there("runuser") {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]);
        command
    } else {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]);
        command
    }
}

/// A server, ended when dropped.
pub struct Server {
    programs: &'static Path,
    scratch: Scratch,
    pub port: u16,
    /// Certificates were made: the server takes TLS, and `authority()` has signed its certificate.
    pub encrypts: bool,
}

impl Server {
    /// A new server that answers; none where there is no PostgreSQL, which is said.
    pub fn start(name: &str) -> Option<Self> {
        let programs = programs()?;
        let scratch = Scratch::new(name);
        let port = free_port();
        let mut server = Server { programs, scratch, port, encrypts: false };
        match certificates(server.scratch.path()) {
            Ok(()) => server.encrypts = true,
            Err(why) => not_run(&format!("TLS to PostgreSQL (no certificate could be made): {why}")),
        }
        server.scratch.write("password", PASSWORD);
        server.own();
        let (data, password) = (server.scratch.at("data"), server.scratch.at("password"));
        let initdb = server.program("initdb", &["-D", &data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", &password, "-E", "UTF8"]);
        assert!(initdb.status.success(), "initdb: {}", text(&initdb));
        server.again();
        Some(server)
    }

    /// Gives all files to the user that the server runs as.
    fn own(&self) {
        if is_root() {
            let done = Command::new("chown").args(["-R", "postgres"]).arg(self.scratch.path()).status();
            assert!(done.is_ok_and(|s| s.success()), "chown to the user postgres, which the package makes");
        }
    }

    /// The file with the certificate of the server's authority; of one that has signed nothing.
    pub fn authority(&self, right: bool) -> String {
        self.scratch.at(if right { "good-ca.pem" } else { "other-ca.pem" })
    }

    /// Runs one of PostgreSQL's programs as the user that may.
    fn program(&self, name: &str, args: &[&str]) -> Output {
        let path = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = as_postgres();
            command.arg(path);
            command
        } else {
            Command::new(path)
        };
        // The scratch directory is one that this user can be in. A server that pg_ctl starts must not inherit pipes.
        let (out, errors) = (self.scratch.at("out"), self.scratch.at("errors"));
        let file = |path: &str| std::fs::File::create(path).expect("a file in the scratch directory");
        command.current_dir(self.scratch.path()).args(args).stdin(Stdio::null()).stdout(file(&out)).stderr(file(&errors));
        let status = command.status().unwrap_or_else(|e| panic!("{name}: {e}"));
        let read = |path: &str| std::fs::read(path).unwrap_or_default();
        Output { status, stdout: read(&out), stderr: read(&errors) }
    }

    /// Starts it on what it has, and waits until it answers.
    pub fn again(&mut self) {
        let mut options = format!("-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories=", self.port);
        // Changes of tables are read from the log.
        options += " -c deadlock_timeout=200ms -c max_connections=50 -c wal_level=logical";
        if self.encrypts {
            let (cert, key) = (self.scratch.at("server.pem"), self.scratch.at("server.key"));
            options += &format!(" -c ssl=on -c ssl_cert_file={cert} -c ssl_key_file={key}");
        }
        let (data, log) = (self.scratch.at("data"), self.scratch.at("log"));
        // Processes of a server that was killed may still hold its memory for a moment.
        wait_for("PostgreSQL to start", || {
            let started = self.program("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", "-t", "300", "start"]);
            started.status.success()
        });
    }

    /// Ends it as a power cut would: all of its processes at once.
    pub fn kill(&mut self) {
        let all = self.processes();
        signal("KILL", &all);
        wait_for("PostgreSQL to end", || all.iter().all(|id| !alive(*id)));
    }

    /// Lets it stand still, and with it all of its sessions, as a machine does that has far too much to do.
    pub fn stand_still(&self) {
        signal("STOP", &self.processes());
    }

    /// Lets it go on after that.
    pub fn go_on(&self) {
        signal("CONT", &self.processes());
    }

    /// All of its processes, the first one first; none if it does not run.
    fn processes(&self) -> Vec<u32> {
        let Some(parent) = self.process() else { return Vec::new() };
        let mut all = vec![parent];
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            // pid (name) state parent …; names of its processes have no bracket.
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let its_parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).and_then(|p| p.parse().ok());
            if its_parent == Some(parent) {
                all.push(id);
            }
        }
        all
    }

    /// The first process of the server, if it runs.
    fn process(&self) -> Option<u32> {
        let file = std::fs::read_to_string(self.scratch.path().join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok().filter(|id| alive(*id))
    }

    /// `psql` with a script, as the user `postgres`.
    fn psql(&self, sql: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-F", ",", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres", "-d", "postgres"]);
        command.args(["-p", &self.port.to_string(), "-c", sql]).env("PGPASSWORD", PASSWORD).env("PGTZ", "UTC");
        command
    }

    /// The rows of a statement, with commas between the columns.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<String> {
        let output = self.psql(sql).output().expect("psql comes with the server");
        assert!(output.status.success(), "{sql}: {}", text(&output));
        String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_string).collect()
    }

    /// The rows of a statement; none if the server does not answer.
    pub fn try_rows(&self, sql: &str) -> Option<Vec<String>> {
        let output = self.psql(sql).output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.lines().map(str::to_string).collect())
    }

    /// A session that runs beside the test.
    pub fn beside(&self, sql: &str) -> Background {
        Background::start(&mut self.psql(sql))
    }

    /// The options of a table here, without the brackets.
    pub fn options(&self, table: &str) -> String {
        self.options_at("127.0.0.1", "ssl-mode=disable", table, PASSWORD)
    }

    /// What the jobs of `examples/databases` are told with `-D`.
    pub fn defines(&self) -> Vec<String> {
        let url = format!("URL=jdbc:postgresql://127.0.0.1:{}/postgres?ssl-mode=disable", self.port);
        vec![url, "USERNAME=postgres".into(), format!("PASSWORD={PASSWORD}")]
    }

    /// The same by another name of the host, with parameters and a password.
    pub fn options_at(&self, host: &str, parameters: &str, table: &str, password: &str) -> String {
        format!(
            "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{host}:{}/postgres?{parameters}', 'table-name' = '{table}', \
             'username' = 'postgres', 'password' = '{password}'",
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that ends at once, but by itself, gives back the memory that its processes share. What is left in `/dev/shm` by
        // those that are killed, and are not started again, stays until that is full.
        if let Some(parent) = self.process() {
            let _ = Command::new("kill").args(["-QUIT", &parent.to_string()]).stderr(Stdio::null()).status();
            let asked = Instant::now();
            while alive(parent) && asked.elapsed() < END_MAX {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.kill();
    }
}

/// Sends processes a signal by its name. One that ended on its own meanwhile is no matter.
fn signal(name: &str, processes: &[u32]) {
    if !processes.is_empty() {
        let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
        let _ = Command::new("kill").arg(format!("-{name}")).args(&ids).stderr(Stdio::null()).status();
    }
}

/// Whether a process runs; one that has ended and that nobody asked for does not.
fn alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z" && state != "X")
}
