//! A process and the threads at its ends: one writes to it, one reads its answers, one what it says to
//! people. None of them outlives the process, and the process does not outlive [`Child`].

use std::collections::VecDeque;
use std::io::{BufWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use tidemill_operator::Wake;
use tidemill_operator::process::Handshake;

use super::wire::AnswerReader;

/// Bytes of answers that nobody has taken before no more are read.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How many of the last lines on standard error an error shows, and how long each may be.
const LINES_MAX: usize = 10;
const LINE_BYTES_MAX: usize = 4096;
/// How long a process whose output has ended may take to end itself, before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// How long is waited for the last lines of a process that is gone.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is started.
#[derive(Clone)]
pub struct ChildSpec {
    /// The function, for messages.
    pub function: String,
    /// The command as it was written, for messages.
    pub command: String,
    /// Its words.
    pub words: Vec<String>,
    /// Where it is started.
    pub directory: Option<PathBuf>,
    /// The columns of messages.
    pub ask: SchemaRef,
    /// The columns of answers.
    pub answer: SchemaRef,
    /// Whether these are told apart by name.
    pub named: bool,
    /// The most messages under way.
    pub in_flight: usize,
}

/// What the reading threads leave for the operator.
#[derive(Default)]
struct Mail {
    handshake: Option<Handshake>,
    answers: VecDeque<(RecordBatch, usize)>,
    bytes: usize,
    /// What is wrong with what it wrote.
    wrong: Option<String>,
    /// Its output has ended.
    ended: bool,
    /// All that it said to people is here.
    silent: bool,
    lines: VecDeque<String>,
    /// Nobody takes answers any more.
    closed: bool,
}

struct Post {
    mail: Mutex<Mail>,
    changed: Condvar,
    wake: Wake,
}

impl Post {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.lock());
        self.changed.notify_all();
        (self.wake)();
    }
}

/// A process that runs.
pub struct Child {
    spec: ChildSpec,
    process: std::process::Child,
    /// Its end, once it is known.
    status: Option<ExitStatus>,
    to: Option<SyncSender<RecordBatch>>,
    post: Arc<Post>,
}

impl Child {
    /// Starts a process. `wake` is called when there is something to be looked at.
    ///
    /// # Errors
    /// It cannot be started; a whole message.
    pub fn start(spec: ChildSpec, wake: Wake) -> Result<Self, String> {
        let mut command = Command::new(&spec.words[0]);
        command.args(&spec.words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C is for the job, which ends it in order, and with it goes what it starts.
        command.process_group(0);
        if let Some(directory) = &spec.directory {
            command.current_dir(directory);
        }
        let mut process = command.spawn().map_err(|e| format!("starting its process '{}': {e}", spec.command))?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let post = Arc::new(Post { mail: Mutex::default(), changed: Condvar::new(), wake });
        // Room for all that may be under way: sending never waits.
        let (to, messages) = sync_channel(spec.in_flight + 1);
        let child = Child { process, status: None, to: Some(to), post, spec };
        let (stdin, stdout, stderr) = (stdin.expect("piped"), stdout.expect("piped"), stderr.expect("piped"));
        let named = |what: &str| thread::Builder::new().name(format!("{}-{what}", child.spec.function));
        let failed = |e: std::io::Error| format!("starting a thread: {e}");
        let ask = child.spec.ask.clone();
        named("asks").spawn(move || write(stdin, &ask, &messages)).map_err(failed)?;
        let reader = AnswerReader::new(stdout, child.spec.answer.clone(), child.spec.named);
        let post = child.post.clone();
        named("answers").spawn(move || read(reader, &post)).map_err(failed)?;
        let (post, function) = (child.post.clone(), child.spec.function.clone());
        named("errors").spawn(move || listen(stderr, &function, &post)).map_err(failed)?;
        Ok(child)
    }

    /// Sends a message. That it cannot be delivered shows in the answers.
    pub fn send(&self, message: RecordBatch) -> Result<(), String> {
        match self.to.as_ref().map(|to| to.try_send(message)) {
            Some(Ok(())) | Some(Err(std::sync::mpsc::TrySendError::Disconnected(_))) => Ok(()),
            Some(Err(std::sync::mpsc::TrySendError::Full(_))) | None => Err("internal error: more messages than may be under way".into()),
        }
    }

    /// What the process has said of itself; waits for it until `until`, if that is given.
    ///
    /// # Errors
    /// It said something else, or has ended; a whole message.
    pub fn handshake(&mut self, until: Option<Instant>) -> Result<Option<Handshake>, String> {
        let ready = self.wait(until, |mail| mail.handshake.is_some());
        let handshake = self.post.lock().handshake;
        if handshake.is_none() && ready {
            return Err(self.failure());
        }
        Ok(handshake)
    }

    /// The next answer; waits for it until `until`, if that is given.
    ///
    /// # Errors
    /// There will be none; a whole message.
    pub fn answer(&mut self, until: Option<Instant>) -> Result<Option<RecordBatch>, String> {
        let ready = self.wait(until, |mail| !mail.answers.is_empty());
        let mut mail = self.post.lock();
        if let Some((answer, bytes)) = mail.answers.pop_front() {
            mail.bytes -= bytes;
            drop(mail);
            self.post.changed.notify_all();
            return Ok(Some(answer));
        }
        drop(mail);
        if ready { Err(self.failure()) } else { Ok(None) }
    }

    /// Waits until something is there or will never be; whether that is so.
    fn wait(&self, until: Option<Instant>, there: impl Fn(&Mail) -> bool) -> bool {
        let mut mail = self.post.lock();
        loop {
            if there(&mail) || mail.wrong.is_some() || mail.ended {
                return true;
            }
            let Some(left) = until.map(|u| u.saturating_duration_since(Instant::now())).filter(|l| !l.is_zero()) else { return false };
            mail = self.post.changed.wait_timeout(mail, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Bytes of answers that are here.
    pub fn bytes(&self) -> usize {
        self.post.lock().bytes
    }

    /// Says that nothing more comes. Whether the process has ended.
    ///
    /// # Errors
    /// It has ended with an error; a whole message.
    pub fn finish(&mut self) -> Result<bool, String> {
        // The writing thread ends the stream and closes the pipe.
        self.to = None;
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
        match self.status {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(_) => Err(self.failure()),
        }
    }

    /// Why the process gives no more answers. Ends it.
    fn failure(&mut self) -> String {
        let wrong = self.post.lock().wrong.clone();
        let what = match wrong {
            Some(wrong) => wrong,
            None => match self.await_end(GRACE) {
                Some(status) => format!("its process ended ({status}) with answers outstanding"),
                None => "its process closed its standard output with answers outstanding".to_string(),
            },
        };
        self.told(&what)
    }

    /// A failure with the command and the last lines of standard error. Ends the process.
    pub fn told(&mut self, what: &str) -> String {
        self.kill();
        let until = Instant::now() + LAST_WORDS;
        let mut mail = self.post.lock();
        while !mail.silent {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            mail = self.post.changed.wait_timeout(mail, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut text = format!("{what}; its command is: {}", self.spec.command);
        if !mail.lines.is_empty() {
            text += "; the last that it wrote to standard error:";
            mail.lines.iter().for_each(|line| text += &format!("\n  {line}"));
        }
        text
    }

    fn await_end(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + at_most;
        loop {
            if self.status.is_none() {
                self.status = self.process.try_wait().ok().flatten();
            }
            if self.status.is_some() || Instant::now() >= until {
                return self.status;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the process and all that it has started and that is still in its group.
    fn kill(&mut self) {
        // A group that is gone may have left its number to another: once the process has been waited for,
        // nobody else may be killed under it. Its children had the same group; they saw their pipes close.
        if self.status.is_none() {
            // SAFETY: a system call without pointers. The process has not been waited for, so its number,
            // which is that of its group, is still its own.
            unsafe { libc::kill(-(self.process.id() as i32), libc::SIGKILL) };
            self.status = self.process.wait().ok();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.to = None;
        self.kill();
        self.post.tell(|mail| mail.closed = true);
    }
}

/// Writes messages until there are none or nobody reads them.
fn write(stdin: ChildStdin, schema: &SchemaRef, messages: &Receiver<RecordBatch>) {
    let written = || -> Result<(), arrow::error::ArrowError> {
        let mut writer = StreamWriter::try_new(BufWriter::with_capacity(64 << 10, stdin), schema)?;
        writer.get_mut().flush()?;
        while let Ok(message) = messages.recv() {
            // The schema of what comes has no metadata.
            writer.write(&message.with_schema(schema.clone())?)?;
            writer.get_mut().flush()?;
        }
        writer.finish()?;
        Ok(writer.get_mut().flush()?)
    };
    // Why nobody reads is seen at the other end, by the thread that reads answers.
    let _ = written();
}

/// Reads answers until there are none.
fn read(mut reader: AnswerReader<ChildStdout>, post: &Post) {
    let mut all = || -> Result<(), String> {
        let Some(handshake) = reader.handshake()? else { return Ok(()) };
        post.tell(|mail| mail.handshake = Some(handshake));
        while let Some((answer, bytes)) = reader.next()? {
            let mut mail = post.lock();
            while mail.bytes > ANSWER_BYTES_MAX && !mail.closed {
                mail = post.changed.wait(mail).unwrap_or_else(PoisonError::into_inner);
            }
            if mail.closed {
                return Ok(());
            }
            drop(mail);
            post.tell(|mail| {
                mail.bytes += bytes;
                mail.answers.push_back((answer, bytes));
            });
        }
        Ok(())
    };
    let result = all();
    post.tell(|mail| {
        mail.ended = true;
        mail.wrong = result.err();
    });
}

/// Passes on what the process says to people, and remembers the last of it.
fn listen(mut stderr: ChildStderr, function: &str, post: &Post) {
    let mut line: Vec<u8> = Vec::new();
    let mut chunk = [0; 4096];
    let say = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).trim_end().to_string();
        line.clear();
        tidemill_connect::notice(&format!("function {function}: {text}"));
        let mut mail = post.lock();
        if mail.lines.len() == LINES_MAX {
            mail.lines.pop_front();
        }
        mail.lines.push_back(text);
    };
    loop {
        let read = match stderr.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for byte in &chunk[..read] {
            if *byte == b'\n' || line.len() >= LINE_BYTES_MAX {
                say(&mut line);
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    if !line.is_empty() {
        say(&mut line);
    }
    post.tell(|mail| mail.silent = true);
}
