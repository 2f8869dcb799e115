//! The repository itself: how its files are built, that its examples are run, that its documents name
//! what there is. (That docs/reference.md is in step with the code is a test in `failures`.)

use std::path::{Path, PathBuf};

use crate::harness::root;

/// No hand-written file is longer.
const LINES_MAX: usize = 1_500;
/// Half of the files are not longer than this, nine tenths not longer than the next.
const LINES_MEDIAN: usize = 180;
const LINES_90TH: usize = 700;
/// Of a hundred lines of code outside of tests, empty ones left out, so many are documentation at least.
const DOC_PERCENT: usize = 10;

/// Files that belong to the repository, by their path from its root: not those that builds and runs
/// leave behind.
fn files() -> Vec<(String, PathBuf)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            let left_behind = matches!(name.as_str(), ".git" | "target" | "demo-output" | "__pycache__");
            if left_behind {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(&root).expect("below the root").display().to_string(), path));
            }
        }
    }
    found.sort();
    found
}

/// The files of a kind, with their text.
fn texts(of: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let read = |path: &Path| std::fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    files().into_iter().filter(|(name, _)| of(name)).filter_map(|(name, path)| read(&path).map(|text| (name, text))).collect()
}

fn sources() -> Vec<(String, String)> {
    let found = texts(|name| name.ends_with(".rs"));
    assert!(found.len() > 100, "only {} sources found", found.len());
    found
}

/// Fails with the offending files, one a line.
#[track_caller]
fn none(what: &str, offending: &[String]) {
    assert!(offending.is_empty(), "{what}:\n  {}", offending.join("\n  "));
}

#[test]
fn every_source_says_what_lives_in_it() {
    let without: Vec<String> = sources().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(name, _)| name).collect();
    none("files that do not begin with a //! header", &without);
}

#[test]
fn files_are_short() {
    let mut lengths: Vec<(usize, String)> = sources().into_iter().map(|(name, text)| (text.lines().count(), name)).collect();
    lengths.sort();
    let over = |bound: usize| lengths.iter().filter(|(n, _)| *n > bound).map(|(n, name)| format!("{name}: {n} lines")).collect::<Vec<_>>();
    none(&format!("files of more than {LINES_MAX} lines"), &over(LINES_MAX));
    for (part, bound) in [(50, LINES_MEDIAN), (90, LINES_90TH)] {
        let at = lengths[lengths.len() * part / 100].0;
        none(
            &format!("{part} of 100 files shall have at most {bound} lines, not {at}; above it are"),
            &if at > bound { over(bound) } else { Vec::new() },
        );
    }
}

#[test]
fn the_code_is_documented() {
    let (mut lines, mut documentation) = (0, 0);
    let mut least: Vec<(usize, String)> = Vec::new();
    for (name, text) in sources() {
        if name.contains("/tests/") || name.ends_with("tests.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().expect("split gives one at least");
        let written = code.lines().map(str::trim).filter(|l| !l.is_empty());
        let (all, doc) = written.fold((0, 0), |(all, doc), l| (all + 1, doc + usize::from(l.starts_with("///") || l.starts_with("//!"))));
        lines += all;
        documentation += doc;
        least.push((doc * 100 / all.max(1), name));
    }
    least.sort();
    let offending: Vec<String> = least.iter().take(20).map(|(percent, name)| format!("{name}: {percent} %")).collect();
    let enough = documentation * 100 >= lines * DOC_PERCENT;
    let what = format!("{documentation} of {lines} lines are documentation, less than {DOC_PERCENT} %; the files with the least");
    none(&what, &if enough { Vec::new() } else { offending });
}

#[test]
fn every_example_is_run_by_a_test() {
    let tests = texts(|name| name.starts_with("crates/tidemill/tests/suite/") && name.ends_with(".rs"));
    let examples = texts(|name| name.starts_with("examples/") && name.ends_with(".sql"));
    assert!(examples.len() >= 4, "examples: {:?}", examples.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let run = |name: &str| tests.iter().any(|(test, text)| !test.ends_with("/tree.rs") && text.contains(name));
    let idle: Vec<String> = examples.into_iter().map(|(name, _)| name).filter(|name| !run(name)).collect();
    none("examples that no test names", &idle);
    let (_, page) = texts(|name| name == "examples/README.md").remove(0);
    let folders = texts(|name| name.starts_with("examples/") && name.ends_with(".sql"));
    let folder = |name: &str| name.split('/').nth(1).expect("examples/<folder>/…").to_string();
    let unlisted: Vec<String> = folders.iter().map(|(name, _)| folder(name)).filter(|f| !page.contains(&format!("[{f}]("))).collect();
    none("examples that examples/README.md does not list", &unlisted);
}

#[test]
fn documents_name_what_there_is() {
    let (_, makefile) = texts(|name| name == "Makefile").remove(0);
    let targets: Vec<&str> = makefile.lines().filter_map(|l| l.split_once(':')).map(|(target, _)| target).collect();
    let mut missing = Vec::new();
    let mut commands = 0;
    for (name, text) in texts(|name| name.ends_with(".md") && !name.starts_with("docs/reference")) {
        for (number, line) in text.lines().enumerate() {
            // Commands stand in a line of their own, indented, or in backticks.
            let indented = line.strip_prefix("    make ").into_iter();
            for command in indented.chain(line.split("`make ").skip(1)) {
                let target: String = command.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
                commands += 1;
                if !targets.contains(&target.as_str()) {
                    missing.push(format!("{name}:{}: make {target}", number + 1));
                }
            }
        }
        // Links to files of the repository.
        let folder = Path::new(&name).parent().expect("a file lies in a folder").to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let local = !link.is_empty() && !link.contains("://") && !link.contains(' ');
            if local && !root().join(&folder).join(link).exists() {
                missing.push(format!("{name}: link to {link}"));
            }
        }
    }
    assert!(commands >= 5, "only {commands} commands found");
    none("documents name what is not there", &missing);
}

/// A path of crates in backticks, `crates/…`, in the documents that say where to look.
#[test]
fn documents_name_paths_that_exist() {
    let mut missing = Vec::new();
    for (name, text) in texts(|name| matches!(name, "ARCHITECTURE.md" | "CONTRIBUTING.md" | "README.md")) {
        for path in text.split('`').skip(1).step_by(2).filter(|path| path.starts_with("crates/")) {
            // `crates/x/{a,b}.rs` names several.
            let paths: Vec<String> =
                match path.split_once('{').and_then(|(head, rest)| rest.split_once('}').map(|(all, tail)| (head, all, tail))) {
                    Some((head, all, tail)) => all.split(',').map(|one| format!("{head}{}{tail}", one.trim())).collect(),
                    None => vec![path.to_string()],
                };
            missing.extend(paths.into_iter().filter(|p| !root().join(p).exists()).map(|p| format!("{name}: {p}")));
        }
    }
    none("documents name paths that do not exist", &missing);
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    // In two parts, so that this file has none itself.
    let homes = [["/ro", "ot/"], ["/ho", "me/"], ["/wo", "rk/"], ["/Us", "ers/"]].map(|parts| parts.concat());
    let mut found = Vec::new();
    for (name, text) in texts(|_| true) {
        // What was measured is also told without the directory that was made for it.
        let kept = name.starts_with("benches/runs/");
        for (number, line) in text.lines().enumerate() {
            if homes.iter().any(|home| line.contains(home.as_str())) || (kept && line.contains("/tmp/")) {
                found.push(format!("{name}:{}", number + 1));
            }
        }
    }
    none("paths that only one machine has", &found);
}
