//! Command lines, and conversations with programs that every system has: `cat` is a function that gives its
//! argument back.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_operator::call::{Calls, Found};
use tidemill_operator::process::Conversation;

use super::wire::AnswerReader;
use super::*;

#[track_caller]
fn words(line: &str, expect: Result<&[&str], &str>) {
    let found = split(line);
    match expect {
        Ok(words) => assert_eq!(found.unwrap(), words, "{line}"),
        Err(why) => assert_eq!(found.unwrap_err(), why, "{line}"),
    }
}

#[test]
fn command_lines() {
    words("python3 f.py  --fast", Ok(&["python3", "f.py", "--fast"]));
    words(r#"'my dir/x' "a \"b\"" c\ d '' e'f'"#, Ok(&["my dir/x", "a \"b\"", "c d", "", "ef"]));
    words(r"'a\b'", Ok(&[r"a\b"]));
    words("  ", Err("no program is named"));
    words("'' x", Err("no program is named"));
    words("x 'y", Err("the quote ' is never closed"));
    words("x \\", Err("nothing follows the last backslash"));
    assert!(find("sh", None).is_ok());
    assert_eq!(find("no-such-program", None).unwrap_err(), "there is no program 'no-such-program' in the directories of PATH");
    assert_eq!(find("./none", Some("/nowhere".as_ref())).unwrap_err(), "there is no program '/nowhere/./none'");
}

#[test]
fn options_of_functions() {
    #[track_caller]
    fn check(options: &[(&str, &str)], expect: &str) {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let shown = match FunctionOptions::read("f", &options) {
            Ok(read) => format!("{} {:?} {} {}", read.batch_rows, read.timeout, read.processes, read.in_flight),
            Err(e) => e.to_string(),
        };
        assert_eq!(shown, expect);
    }
    check(&[], "1024 30s 1 4");
    check(&[("batch.rows", "7"), ("timeout", "2 s")], "7 2s 1 4");
    check(&[("processes", "0")], "function 'f': option 'processes' = '0': expected 1 to 256");
    check(&[("timeouts", "1 s")], "function 'f': unknown option 'timeouts'; did you mean 'timeout'?");
}

fn column(name: &str) -> Schema {
    Schema::new(vec![Field::new(name, DataType::Int64, true)])
}

fn rows(values: &[i64]) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_new(Arc::new(column("a")), vec![values]).unwrap()
}

fn talk(command: &str, timeout: Duration) -> Talk {
    talk_of(command, timeout, column("f"))
}

fn talk_of(command: &str, timeout: Duration, answer: Schema) -> Talk {
    let answer: SchemaRef = Arc::new(answer);
    let child = ChildSpec {
        function: "f".into(),
        command: command.into(),
        words: split(command).unwrap(),
        directory: None,
        ask: ask_schema(&column("a"), "f", false, &[], None),
        answer,
        named: false,
        in_flight: 2,
    };
    let mut talk = Talk::new(TalkSpec { child, timeout });
    talk.attach(Arc::new(|| {}));
    talk
}

/// Long enough for any machine that tests run on.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_conversation() {
    let mut talk = talk("cat", PATIENCE);
    assert!(talk.finish().unwrap(), "one that was never started has ended");
    talk.start().unwrap();
    for round in 0..3 {
        talk.ask(rows(&[round, 2])).unwrap();
        talk.ask(rows(&[])).unwrap();
        assert!(talk.full());
        assert_eq!(talk.answer(true).unwrap().unwrap().columns(), rows(&[round, 2]).columns());
        assert_eq!(talk.answer(true).unwrap().unwrap().num_rows(), 0);
        assert!(talk.answer(false).unwrap().is_none() && !talk.full());
    }
    while !talk.finish().unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn fails(command: &str, timeout: Duration, expect: &[&str]) {
    let mut talk = talk(command, timeout);
    let error = match talk.start() {
        Err(e) => e.to_string(),
        Ok(()) => {
            talk.ask(rows(&[1])).unwrap();
            talk.answer(true).unwrap_err().to_string()
        }
    };
    for part in expect {
        assert!(error.contains(part), "{command}: {error}");
    }
}

#[test]
fn what_goes_wrong_is_told() {
    fails("no-such-program", PATIENCE, &["starting its process 'no-such-program'"]);
    fails(
        "sh -c 'echo one >&2; echo two >&2; exit 3'",
        PATIENCE,
        &["its process ended (exit status: 3) with answers outstanding; its command is: sh -c", "\n  one\n  two"],
    );
    fails("echo hello", PATIENCE, &["it wrote \"hello\\n\" to its standard output, which is for Arrow IPC alone"]);
    fails("echo hello, everybody", PATIENCE, &["it wrote \"hello, e\" to its standard output"]);
    fails(
        "sleep 1000",
        Duration::from_millis(50),
        &["has not written the schema of its answers within 50ms; it hangs, or the option 'timeout'"],
    );
    // The schema goes back, the rows do not.
    fails("sh -c 'head -c 8; sleep 1000'", Duration::from_millis(200), &["within 200ms"]);
}

#[test]
fn answers_of_other_columns() {
    let mut talk = talk_of("cat", PATIENCE, Schema::new(vec![Field::new("f", DataType::Utf8, true)]));
    talk.start().unwrap();
    let error = talk.handshake(true).unwrap_err().to_string();
    assert!(error.contains("its answers have the columns (a BIGINT), and those declared are (f STRING)"), "{error}");
}

/// The process is gone when its conversation is dropped.
#[test]
fn no_process_is_left_behind() {
    let folder = std::env::temp_dir().join(format!("tidemill-function-{}", std::process::id()));
    let told = folder.with_extension("pid");
    let mut talk = talk(&format!("sh -c 'echo $$ > {}.part && mv {0}.part {0} && exec sleep 1000'", told.display()), PATIENCE);
    talk.start().unwrap();
    let pid = loop {
        if let Ok(text) = std::fs::read_to_string(&told) {
            break text.trim().to_string();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    drop(talk);
    let _ = std::fs::remove_file(&told);
    let there = std::process::Command::new("kill").args(["-0", &pid]).stderr(std::process::Stdio::null()).status().unwrap();
    assert!(!there.success(), "process {pid} lives on");
}

#[test]
fn a_stream_that_ends_within_a_message() {
    let mut bytes = Vec::new();
    {
        let schema = ask_schema(&column("a"), "f", false, &[], None);
        let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut bytes, &schema).unwrap();
        writer.write(&rows(&[1, 2, 3]).with_schema(schema).unwrap()).unwrap();
    }
    let read = |bytes: &[u8]| -> Result<usize, String> {
        let mut reader = AnswerReader::new(bytes, Arc::new(column("f")), false);
        let mut answers = 0;
        if reader.handshake()?.is_some() {
            while reader.next()?.is_some() {
                answers += 1;
            }
        }
        Ok(answers)
    };
    assert_eq!(read(&bytes), Ok(1));
    assert_eq!(read(&[]), Ok(0));
    for cut in 9..bytes.len() - 1 {
        let found = read(&bytes[..cut]);
        assert!(found == Ok(0) || found.is_err(), "cut at {cut}: {found:?}");
    }
}

#[test]
fn calls_by_threads() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let wake: tidemill_operator::Wake = Arc::new(move || {
        let _ = told.lock().unwrap().send(());
    });
    let function = |rows: &RecordBatch| Ok(Found { rows: rows.clone(), origins: vec![0] });
    let mut calls = ThreadCalls::start(2, wake, function).unwrap();
    (0..10).for_each(|n| calls.start(n, &rows(&[n as i64])).unwrap());
    let mut answers = Vec::new();
    while answers.len() < 10 {
        heard.recv().unwrap();
        calls.finished(&mut answers);
    }
    answers.sort_by_key(|a| a.call);
    let found: Vec<RecordBatch> = answers.into_iter().map(|a| a.result.unwrap().rows).collect();
    assert_eq!(found, (0..10).map(|n| rows(&[n])).collect::<Vec<_>>());
}
