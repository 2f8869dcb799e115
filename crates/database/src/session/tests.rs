//! Patience.

use super::*;

/// A job that was asked to stop while its database was away tried on for all of 'connection.max-retry-timeout'.
#[test]
fn patience_is_short_for_a_job_that_stops() {
    let url = crate::url::Url::parse("jdbc:sqlite:nowhere.db").unwrap();
    let access = Access {
        driver: crate::sqlite::driver(&url).unwrap(),
        place: "SQLite".into(),
        connect_timeout: Duration::from_secs(5),
        retry_timeout: Duration::from_secs(600),
        max_retries: 1000,
    };
    let (stopping, never) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    for error in [DbError::connection("away"), DbError::retry("locked")] {
        let after = |time| Patience { since: Instant::now().checked_sub(time), stopping: stopping.clone(), ..Patience::new(&access) };
        stopping.store(false, Ordering::Relaxed);
        assert_eq!(after(STOP_PATIENCE).wait(error.clone(), &never), Ok(()));
        stopping.store(true, Ordering::Relaxed);
        assert_eq!(after(Duration::ZERO).wait(error.clone(), &never), Ok(()));
        let given_up = after(STOP_PATIENCE).wait(error.clone(), &never).unwrap_err();
        assert!(given_up.kind == error.kind && given_up.message.contains("the job is being stopped"), "{given_up}");
    }
}
