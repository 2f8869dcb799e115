//! Errors that point at the text, and the arithmetic between sqlparser's line and column positions
//! and byte offsets. Nothing here knows a statement.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use sqlparser::tokenizer::Location;

/// A part of a script: byte offsets, `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The span from `start` up to, not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end, "span {start}..{end} is reversed");
        Span { start, end }
    }

    /// The smallest span that contains both.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The text it covers; empty when the span is not of this script.
    pub fn text(self, script: &str) -> &str {
        script.get(self.start..self.end).unwrap_or_default()
    }
}

/// What is wrong with a script, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// One sentence without full stop, plain text.
    pub message: String,
    /// The place in the script, if there is one.
    pub span: Option<Span>,
    /// What to write instead, if that is known.
    pub help: Option<String>,
}

impl SqlError {
    /// An error without a place.
    pub fn new(message: impl Into<String>) -> Self {
        SqlError { message: message.into(), span: None, help: None }
    }

    /// An error at a place.
    pub fn at(span: Span, message: impl Into<String>) -> Self {
        SqlError { message: message.into(), span: Some(span), help: None }
    }

    /// The same error with advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same error, at `span` unless it knows its place already.
    #[must_use]
    pub fn or_at(mut self, span: Option<Span>) -> Self {
        self.span = self.span.or(span);
        self
    }

    /// The error as a person reads it: message, file with line and column, the source line with the
    /// place underlined, help. No line end at the end.
    pub fn render(&self, file_name: &str, script: &str, color: bool) -> String {
        let title = Level::ERROR.primary_title(clean(&self.message));
        let mut group = match self.span {
            Some(span) => {
                let span = drawable(span, script);
                title.element(Snippet::source(script).path(file_name).annotation(AnnotationKind::Primary.span(span.start..span.end)))
            }
            None => Group::with_title(title).element(Origin::path(file_name)),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(clean(help)));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

/// Text of the script may be quoted in a message: control characters must not reach a terminal.
fn clean(text: &str) -> String {
    annotate_snippets::normalize_untrusted_str(text)
}

/// The span clipped to the script, on character boundaries, and to the end of its first line: a
/// statement of forty lines is not underlined whole.
fn drawable(span: Span, script: &str) -> Span {
    let mut start = script.floor_char_boundary(span.start.min(script.len()));
    let mut end = script.ceil_char_boundary(span.end.clamp(start, script.len()));
    if let Some(line_end) = script[start..end].find('\n') {
        end = start + script[start..start + line_end].trim_end().len();
    }
    if start == end && start == script.len() {
        // Behind the last character: stand behind the last one that is not white space.
        start = script.trim_end().len();
        end = start;
    }
    Span { start, end }
}

/// The lines of a script: from sqlparser's positions (line and column from 1, columns in characters)
/// to byte offsets.
#[derive(Clone, Debug)]
pub struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    /// Finds the lines.
    pub fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1)).collect();
        LineIndex { text, starts }
    }

    /// The script.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The byte offset of a position; `None` for sqlparser's empty position. A position behind the
    /// end of its line is the end of the line.
    pub fn offset(&self, location: Location) -> Option<usize> {
        if location.line == 0 || location.column == 0 {
            return None;
        }
        let line = usize::try_from(location.line - 1).ok()?;
        let start = *self.starts.get(line)?;
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        let column = usize::try_from(location.column - 1).ok()?;
        let line = &self.text[start..end];
        Some(start + line.char_indices().nth(column).map_or(line.len(), |(i, _)| i))
    }

    /// The bytes of a sqlparser span; `None` for the empty one, as computed parts of a tree have it.
    pub fn span(&self, span: sqlparser::tokenizer::Span) -> Option<Span> {
        let start = self.offset(span.start)?;
        let end = self.offset(span.end).unwrap_or(start);
        Some(Span { start, end: end.max(start) })
    }

    /// Line and column (both from 1, the column in characters) of a byte offset.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset.min(self.text.len()));
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        (line, self.text[start..offset].chars().count() + 1)
    }
}

#[cfg(test)]
mod tests;
