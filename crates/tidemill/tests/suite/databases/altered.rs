//! Tables that are altered while a job writes to them: what the job does not write to is no matter, nor is another type that holds
//! its values; a column that is gone ends it.

use crate::harness::{Background, Scratch, tidemill, wait_for};

/// A database that is asked without us.
pub struct Altered<'a> {
    /// The options of table `altered`, without the brackets.
    pub options: &'a str,
    /// Runs a statement.
    pub run: &'a dyn Fn(&str),
    /// The number that a statement gives.
    pub number: &'a dyn Fn(&str) -> i64,
    /// What gives a column of a table another type stands before its name, and between that and the type.
    pub change_type: [&'a str; 2],
}

impl Altered<'_> {
    /// Rows that are appended, and rows that are upserted.
    pub fn check(&self) {
        self.job("", "appended");
        self.job(", PRIMARY KEY (id) NOT ENFORCED", "upserted");
    }

    fn job(&self, key: &str, what: &str) {
        (self.run)("CREATE TABLE altered (id BIGINT PRIMARY KEY, v INT, w BIGINT)");
        let scratch = Scratch::new("altered");
        let sql = format!(
            "CREATE TABLE made_up (id BIGINT, v INT, w BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '2000',\n\
             'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1000000000',\n\
             'fields.v.min' = '0', 'fields.v.max' = '999', 'fields.w.min' = '0', 'fields.w.max' = '999');\n\
             CREATE TABLE altered (id BIGINT, v INT, w BIGINT{key}) WITH ({});\n\
             INSERT INTO altered SELECT * FROM made_up;\n",
            self.options
        );
        let mut running = Background::start(tidemill().args([
            "run",
            &scratch.write("job.sql", sql),
            "--quiet",
            "--set",
            "execution.runtime-mode=streaming",
        ]));
        let rows = || (self.number)("SELECT COUNT(*) FROM altered");
        let mut more = |after: &str| {
            let before = rows();
            wait_for(&format!("rows to be {what} after {after}"), || {
                let ended = running.0.try_wait().expect("waiting for the job").is_some();
                assert!(!ended, "{what} after {after}: {}", running.end().1);
                rows() > before + 500
            });
        };
        more("the start");
        for (change, name, to) in [("another column", "note", ""), ("a wider type", "v", "BIGINT"), ("a narrower type", "w", "INT")] {
            let alter = if to.is_empty() {
                format!("ALTER TABLE altered ADD COLUMN {name} VARCHAR(10)")
            } else {
                let [before, between] = self.change_type;
                format!("ALTER TABLE altered {before} {name} {between} {to}")
            };
            (self.run)(&alter);
            more(change);
        }
        assert_eq!((self.number)("SELECT COUNT(*) FROM altered WHERE v < 0 OR v > 999 OR w < 0 OR w > 999 OR v IS NULL"), 0, "{what}");
        (self.run)("ALTER TABLE altered DROP COLUMN v");
        let (code, errors) = running.end();
        let named = errors.contains("\"v\"") || errors.contains("'v'");
        assert!(code == Some(1) && errors.contains("olumn") && named, "{what}: {code:?} {errors}");
        (self.run)("DROP TABLE altered");
    }
}
