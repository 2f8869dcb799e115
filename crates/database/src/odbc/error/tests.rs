//! Which states are of which kind, and what messages say.

use super::*;

fn failure(state: &str, native: i32, message: &str) -> Failure {
    Failure(vec![Record { state: state.into(), native, message: message.into() }])
}

#[test]
fn states_have_kinds() {
    use DbErrorKind::*;
    #[track_caller]
    fn check(system: System, states: &[(&str, i32)], expect: DbErrorKind) {
        for (state, native) in states {
            assert_eq!(kind_of(&failure(state, *native, ""), system), expect, "{state} {native}");
        }
    }
    check(System::Standard, &[("08S01", 0), ("08001", 0), ("HYT01", 0), ("40003", 0)], Connection);
    check(System::Standard, &[("40001", 0), ("HYT00", 0)], Retry);
    check(System::Standard, &[("23000", 0), ("22001", 0), ("22003", 0), ("44000", 0), ("40002", 0)], Data);
    check(System::Standard, &[("42S02", 0), ("42000", 0), ("28000", 0), ("IM002", 0), ("01000", 0), ("HY000", 0), ("", 0)], Fatal);
    check(System::Postgres, &[("23505", 1), ("22P02", 1)], Data);
    check(System::Postgres, &[("40P01", 1), ("55P03", 1), ("25P02", 1)], Retry);
    check(System::Postgres, &[("57P01", 35), ("57P03", 0), ("53300", 0)], Connection);
    check(System::MySql, &[("HY000", 1205), ("40001", 1213)], Retry);
    check(System::MySql, &[("HY000", 2002), ("08S01", 2013), ("HY000", 1040)], Connection);
    check(System::MySql, &[("23000", 1062), ("22007", 1366), ("HY000", 1364)], Data);
    check(System::MySql, &[("28000", 1045), ("42S02", 1146), ("HY000", 1290)], Fatal);
    check(System::SqlServer, &[("42000", 1222), ("40001", 1205)], Retry);
    check(System::Oracle, &[("HY000", 8177)], Retry);
    check(System::Oracle, &[("HY000", 12899), ("23000", 1)], Data);
    check(System::Oracle, &[("HY000", 12541)], Connection);
}

#[test]
fn a_warning_beside_an_error_is_passed_over() {
    let mut both = failure("01000", 0, "by the way");
    both.0.extend(failure("23505", 1, "ERROR: duplicate key;\nError while executing the query").0);
    let error = db_error("inserting", &both, System::Postgres);
    assert_eq!(error, DbError::data("inserting: ERROR: duplicate key (SQLSTATE 23505)"));
}

#[test]
fn a_refused_login_is_not_tried_again() {
    let kind = |message: &str| kind_of(&failure("08001", 101, message), System::Postgres);
    assert_eq!(kind("connection to server failed: FATAL:  password authentication failed for user \"u\""), DbErrorKind::Fatal);
    assert_eq!(kind("connection to server failed: FATAL:  the database system is starting up"), DbErrorKind::Connection);
    assert_eq!(kind("connection to server failed: Connection refused"), DbErrorKind::Connection);
}

#[test]
fn messages_say_what_to_do_and_no_password() {
    let missing = failure("01000", 0, "[unixODBC][Driver Manager]Can't open lib 'Nope' : file not found");
    let error = db_error("connecting", &missing, System::Standard);
    assert!(error.message.contains("odbcinst -q -d") && error.message.contains("Nope"), "{error}");
    let repeated = without(DbError::fatal("PWD=hidden is wrong"), Some(&Secret::new("hidden")));
    assert_eq!(repeated.message, "PWD=*** is wrong");
}
