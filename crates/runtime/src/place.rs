//! Where in a script stands what cannot be planned. Plans have no places: an error brings words along that are looked
//! for in the text of its insert, then in the views that the insert reads.

use tidemill_sql::ast::Statement;
use tidemill_sql::{Finder, Span, SqlError};

use crate::JobError;

/// The places of what a script declares.
#[derive(Default)]
pub(crate) struct Places {
    /// Names of tables, views and functions, in order of the text.
    declared: Vec<(String, Span)>,
}

impl Places {
    /// Notes what a statement declares.
    pub fn note(&mut self, statement: &Statement) {
        self.declared.extend(statement.declares().map(|name| (name.to_string(), statement.span)));
    }

    /// Forgets a text.
    pub fn clear(&mut self) {
        self.declared.clear();
    }

    /// The newest declaration of a name; empty if it is not in this text.
    pub fn declaration(&self, name: &str) -> Span {
        self.declared.iter().rev().find(|(declared, _)| declared == name).map_or(Span::default(), |(_, span)| *span)
    }

    /// The error of an insert, with its place in the text. Of an insert that is not in the text, `insert` is empty.
    pub fn place(&self, text: &str, insert: Span, error: JobError) -> JobError {
        let known = (insert.start < insert.end).then_some(insert);
        let (message, words) = match error {
            JobError::Usage(message) => (message, Vec::new()),
            JobError::Refused(refusal) => (refusal.message, refusal.words),
            JobError::Sql(e) => return JobError::Sql(Box::new(e.or_at(known))),
            failed @ JobError::Failed(_) => return failed,
        };
        let Ok(finder) = Finder::new(text) else { return JobError::Usage(message) };
        let place = self.in_declaration(&finder, &message).or_else(|| {
            let texts = self.texts(&finder, known?);
            words.iter().find_map(|words| texts.iter().find_map(|within| finder.find(*within, words))).or(known)
        });
        match place {
            Some(place) => SqlError::at(place, message).into(),
            None => JobError::Usage(message),
        }
    }

    /// What is wrong with a table or a function itself is said as `table 't': …`, with the option in quotes.
    fn in_declaration(&self, finder: &Finder<'_>, message: &str) -> Option<Span> {
        let (name, rest) = ["table '", "function '"].iter().find_map(|what| message.strip_prefix(what))?.split_once('\'')?;
        // `table 't' (connector 'c') …` is about a query.
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix(" has "))?;
        let (_, span) = self.declared.iter().rev().find(|(declared, _)| declared == name)?;
        let quoted = rest.split('\'').skip(1).step_by(2).find_map(|option| finder.find(*span, &format!("'{option}'")));
        Some(quoted.or_else(|| finder.find(*span, name)).unwrap_or(*span))
    }

    /// The insert and the views that it reads, also by way of others.
    fn texts(&self, finder: &Finder<'_>, insert: Span) -> Vec<Span> {
        let mut texts = vec![insert];
        // A view reads only those in front of it.
        for (name, span) in self.declared.iter().rev().filter(|(_, span)| span.end <= insert.start) {
            if texts.iter().any(|text| finder.find(*text, name).is_some()) {
                texts.push(*span);
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use tidemill_plan::Refusal;
    use tidemill_sql::Session;

    use super::*;

    const TEXT: &str = "CREATE TABLE t (a INT) WITH ('connector' = 'x', 'pth' = 'y');
CREATE VIEW u AS SELECT NTILE(2) OVER () AS a FROM t;
CREATE VIEW v AS SELECT a FROM u;
CREATE VIEW w AS SELECT LAG(a) OVER () AS a FROM t;
INSERT INTO s SELECT a FROM v
WHERE a > 1;
INSERT INTO s SELECT NTILE(3) OVER () FROM t";

    /// Where an error of the insert that begins with the number-th `INSERT` is shown, and with which text.
    fn placed(number: usize, error: JobError) -> Option<(usize, String)> {
        let mut places = Places::default();
        let statements = Session::new().parse(TEXT).expect("a script");
        statements.iter().for_each(|statement| places.note(statement));
        let insert = statements.iter().filter(|s| s.declares().is_none()).nth(number).map_or(Span::default(), |s| s.span);
        match places.place(TEXT, insert, error) {
            JobError::Sql(e) => e.span.map(|span| (TEXT[..span.start].matches('\n').count() + 1, span.text(TEXT).to_string())),
            _ => None,
        }
    }

    #[test]
    fn the_place_is_in_the_insert_or_in_what_it_reads() {
        let refused = |words: &[&str]| JobError::Refused(Refusal::new("no", words.iter().copied()));
        let at = |line: usize, text: &str| Some((line, text.to_string()));
        assert_eq!(placed(1, refused(&["NTILE"])), at(7, "NTILE"));
        assert_eq!(placed(0, refused(&["NTILE"])), at(2, "NTILE"), "by way of v");
        assert_eq!(placed(0, refused(&["LAG", "a > 1"])), at(6, "a > 1"), "w is not read");
        assert_eq!(placed(1, refused(&["LEAD"])), at(7, "INSERT INTO s SELECT NTILE(3) OVER () FROM t"));
        assert_eq!(placed(1, JobError::usage("no")), at(7, "INSERT INTO s SELECT NTILE(3) OVER () FROM t"));
        assert_eq!(placed(2, refused(&["NTILE"])), None, "there is no such insert");
        assert_eq!(placed(1, JobError::failed("no")), None);
    }

    #[test]
    fn options_are_wrong_where_they_are_declared() {
        let at = |text: &str| Some((1, text.to_string()));
        assert_eq!(placed(1, JobError::usage("table 't': there is no option 'pth'; did you mean 'path'?")), at("'pth'"));
        assert_eq!(placed(1, JobError::usage("table 't' has no end")), at("t"));
        assert_eq!(placed(2, JobError::usage("table 't': no")), at("t"), "also of a view that is served");
    }
}
