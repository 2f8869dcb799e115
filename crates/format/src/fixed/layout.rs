//! What `fixed.widths` says: where each column stands in a line. Nothing here looks at lines.

use crate::FormatError;

/// The longest line that can be described, characters.
const LINE_MAX: usize = 16 << 20;

/// The place of a column in a line: characters `start..end`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub start: usize,
    /// `usize::MAX` if the column is the rest of the line.
    pub end: usize,
}

impl Place {
    /// Whether the column is the rest of the line.
    pub fn is_rest(self) -> bool {
        self.end == usize::MAX
    }

    /// How many characters it has; of no meaning for the rest of a line.
    pub fn width(self) -> usize {
        self.end - self.start
    }
}

/// Where the columns of a table stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of each physical column, in the table's order.
    pub places: Vec<Place>,
    /// Where a line must end, if it must not be longer.
    pub exact: Option<usize>,
}

impl Layout {
    /// The places that `widths` gives to columns of these names.
    ///
    /// # Errors
    /// What is wrong with the option.
    pub fn of(widths: &str, names: &[&str]) -> Result<Self, FormatError> {
        let entries = entries(widths)?;
        let wrong = |what: String| Err(FormatError::option(format!("'fixed.widths' = '{widths}': {what}")));
        if entries.iter().all(|(name, _)| name.is_none()) {
            if entries.len() != names.len() {
                return wrong(format!("there are {} widths for {} columns ({})", entries.len(), names.len(), names.join(", ")));
            }
            let places: Vec<Place> = entries.into_iter().map(|(_, place)| place).collect();
            let exact = places.last().filter(|place| !place.is_rest()).map(|place| place.end);
            return Ok(Layout { places, exact });
        }
        let named: Vec<(&str, Place)> = entries.into_iter().filter_map(|(name, place)| Some((name?, place))).collect();
        for (at, (name, _)) in named.iter().enumerate() {
            if !names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
                return wrong(format!("there is no column '{name}'; the columns are {}", names.join(", ")));
            }
            if named[..at].iter().any(|(other, _)| other == name) {
                return wrong(format!("the column '{name}' has two places"));
            }
        }
        // Of two columns whose names differ in capitals only, each has its own.
        let find = |wanted: &str| {
            let exactly = named.iter().find(|(name, _)| *name == wanted);
            exactly.or_else(|| named.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))).map(|(_, place)| *place)
        };
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            match find(name) {
                Some(place) => places.push(place),
                None => return wrong(format!("it lacks the column '{name}'; add its place, such as '{name}:1-8'")),
            }
        }
        Ok(Layout { places, exact: None })
    }

    /// How many characters a line needs to have all columns.
    pub fn length(&self) -> usize {
        self.places.iter().map(|place| if place.is_rest() { place.start } else { place.end }).max().unwrap_or(0)
    }
}

/// The columns that the option names, or those that it only gives widths, in its order.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn entries(widths: &str) -> Result<Vec<(Option<&str>, Place)>, FormatError> {
    let wrong = |what: String| Err(FormatError::option(format!("'fixed.widths' = '{widths}': {what}")));
    let (mut entries, mut behind) = (Vec::new(), 0);
    for item in widths.split(',').map(str::trim) {
        if behind == usize::MAX && !item.contains(':') {
            return wrong("the rest of the line ('*') is the last column".to_string());
        }
        let (name, place) = match item.rsplit_once(':') {
            Some((name, place)) => (Some(name.trim()).filter(|name| !name.is_empty()), self::place(place)),
            None if item == "*" => (None, Some(Place { start: behind, end: usize::MAX })),
            None => {
                let width = item.parse::<usize>().ok().filter(|width| (1..=LINE_MAX).contains(width));
                (None, width.map(|width| Place { start: behind, end: behind + width }))
            }
        };
        match place {
            Some(place) if name.is_some() == item.contains(':') => {
                behind = place.end;
                entries.push((name, place));
            }
            _ => {
                return wrong(format!(
                    "'{item}' is neither a width (8), a column's place (name:1-8), nor the rest of the line (*, name:9-*)"
                ));
            }
        }
        if behind > LINE_MAX && behind != usize::MAX {
            return wrong(format!("a line can have {LINE_MAX} characters at most"));
        }
    }
    let named = entries.iter().filter(|(name, _)| name.is_some()).count();
    if named != 0 && named != entries.len() {
        return wrong("give each column its place by name, or each a width".to_string());
    }
    Ok(entries)
}

/// `1-8`, `9` or `21-*`, counted from 1, the last place included.
fn place(text: &str) -> Option<Place> {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=LINE_MAX).contains(n));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let start = number(first)? - 1;
    let end = if last.trim() == "*" { usize::MAX } else { number(last)? };
    (start < end).then_some(Place { start, end })
}
