//! The bytes of a footer and of an offset index, in Thrift's compact protocol, before the library makes anything of them. They are passed
//! over as it reads them: what it knows by a field's number has the kind that it reads there, and it looks at no kind but those. So
//! what is a list here is that list there, and its length has been looked at.

use self::Known::{Byte, Double, List, Number, Passed, Struct, Structs, Text, Truth};

/// So many row groups the library can number.
const ROW_GROUPS_MAX: u64 = 1 << 15;
/// Structures lie in each other some five deep, where the library does not know them at most so many. It goes 64 deep itself.
const DEPTH_MAX: usize = 32;
/// So many groups of a schema lie in each other at most: the library calls itself for each.
const LEVELS_MAX: usize = 128;
/// A page's place: three fields, of which each has its head and a byte at least, and the end.
const PAGE_BYTES_MIN: u64 = 7;

/// How the library reads a field.
#[derive(Clone, Copy)]
enum Known {
    /// It passes over it, whatever it is.
    Passed,
    Truth,
    Byte,
    /// Those of 16, 32 and 64 bits are written alike.
    Number,
    Double,
    /// A text, or bytes.
    Text,
    /// Of what is no structure.
    List,
    /// A structure with these fields, from number 1 on. Others are passed over.
    Struct(&'static [Known]),
    /// A list of such.
    Structs(&'static [Known]),
}

/// The structures of a footer, as `parquet.thrift` has them, as far as the library reads them: `FileMetaData`.
const FILE: &[Known] = &[Number, Structs(NODE), Number, Structs(GROUP), Structs(PAIR), Text, Structs(&[NOTHING])];
/// `SchemaElement`.
const NODE: &[Known] = &[Number, Number, Number, Text, Number, Number, Number, Number, Number, Struct(LOGICAL)];
/// `LogicalType`: of many types there is nothing but that they are it.
const LOGICAL: &[Known] = &[
    NOTHING,
    NOTHING,
    NOTHING,
    NOTHING,
    Struct(&[Number, Number]),
    NOTHING,
    Struct(TIME),
    Struct(TIME),
    Passed,
    Struct(&[Byte, Truth]),
    NOTHING,
    NOTHING,
    NOTHING,
    NOTHING,
    NOTHING,
    Struct(&[Byte]),
    Struct(&[Text]),
    Struct(&[Text, Number]),
];
/// `TimeType` and `TimestampType`.
const TIME: &[Known] = &[Truth, Struct(&[NOTHING, NOTHING, NOTHING])];
/// `RowGroup`.
const GROUP: &[Known] = &[Structs(CHUNK), Number, Number, Structs(&[Number, Truth, Truth]), Number, Number, Number];
/// `ColumnChunk`. Of encrypted ones nothing is read.
const CHUNK: &[Known] = &[Text, Number, Struct(COLUMN), Number, Number, Number, Number];
/// `ColumnMetaData`.
const COLUMN: &[Known] = &[
    Number,
    List,
    List,
    Number,
    Number,
    Number,
    Number,
    Structs(PAIR),
    Number,
    Number,
    Number,
    Struct(&[Text, Text, Number, Number, Text, Text, Truth, Truth]),
    Structs(&[Number, Number, Number]),
    Number,
    Number,
    Struct(&[Number, List, List]),
    Struct(&[Struct(&[Double; 8]), List]),
];
/// `KeyValue`.
const PAIR: &[Known] = &[Text, Text];
/// A structure of which no field is known.
const NOTHING: Known = Struct(&[]);

/// Looks whether the bytes of a footer are whole and say what the library reads in them, its row groups not too many, and the nodes of its
/// schema as many as they say.
///
/// # Errors
/// What is wrong, in a few words.
pub(super) fn check_footer(footer: &[u8]) -> Result<(), String> {
    let damaged = || "it is damaged".to_string();
    let (mut thrift, mut id) = (Thrift { left: footer }, 0);
    while let Some(kind) = thrift.field(&mut id).ok_or_else(damaged)? {
        // What it has for certain is seen when it is passed over.
        let mut ahead = Thrift { left: thrift.left };
        if (id, kind) == (2, 9) && !ahead.is_tree().ok_or_else(damaged)? {
            return Err("the nodes of its schema lie too deep in each other, or are not there".to_string());
        }
        if (id, kind) == (4, 9) {
            let many = ahead.count().ok_or_else(damaged)?.1;
            if many > ROW_GROUPS_MAX {
                return Err(format!("it says that there are {many} row groups, and {ROW_GROUPS_MAX} are the most"));
            }
        }
        thrift.known(kind, field_of(FILE, id)).ok_or_else(damaged)?;
    }
    Ok(())
}

/// Whether an offset index that begins with a list of its pages has the bytes for them. The library reads other ones more slowly,
/// and believes no list.
pub(super) fn pages_fit(index: &[u8]) -> bool {
    let Some((0x19, list)) = index.split_first().map(|(first, rest)| (*first, rest)) else { return true };
    let mut list = Thrift { left: list };
    let Some((_, count)) = list.count() else { return false };
    count.checked_mul(PAGE_BYTES_MIN).is_some_and(|bytes| bytes <= list.left.len() as u64)
}

/// How the field with this number is read.
fn field_of(fields: &[Known], id: i16) -> Known {
    let place = usize::try_from(i32::from(id) - 1).ok();
    place.and_then(|place| fields.get(place)).copied().unwrap_or(Passed)
}

/// Passes over values in Thrift's compact protocol; `None` where they are cut off or make no sense.
struct Thrift<'a> {
    left: &'a [u8],
}

impl Thrift<'_> {
    /// Passes over the value of a field, if its kind is the one that is read there.
    fn known(&mut self, kind: u8, known: Known) -> Option<()> {
        match (known, kind) {
            (Struct(fields), 12) => self.structure(fields),
            (Structs(fields), 9) => {
                let (kind, count) = self.list()?;
                if count > 0 && kind != 12 {
                    return None;
                }
                (0..count).try_for_each(|_| self.structure(fields))
            }
            (Passed, _) | (Truth, 1 | 2) | (Byte, 3) | (Number, 4..=6) | (Double, 7) | (Text, 8) | (List, 9) => self.skip(kind, DEPTH_MAX),
            _ => None,
        }
    }

    /// Passes over a structure with these fields.
    fn structure(&mut self, fields: &[Known]) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            self.known(kind, field_of(fields, id))?;
        }
        Some(())
    }

    /// Whether the nodes of a schema, a list that begins here, are no fewer than they say, and lie not too deep in each other.
    fn is_tree(&mut self) -> Option<bool> {
        let (_, count) = self.list()?;
        let (mut together, mut open) = (0, Vec::<u64>::new());
        for _ in 0..count {
            let children = self.children()?;
            together += children;
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            open.push(children);
            if open.len() > LEVELS_MAX {
                return Some(false);
            }
        }
        // The root is nobody's child.
        Some(together < count.max(1))
    }

    /// Passes over a node of a schema, for the number of its children.
    fn children(&mut self) -> Option<u64> {
        let (mut id, mut children) = (0, 0);
        while let Some(kind) = self.field(&mut id)? {
            if id == 5 && matches!(kind, 4..=6) {
                // The library drops what has no place in 32 bits.
                children = u64::try_from(self.signed()? as i32).ok()?;
            } else {
                self.skip(kind, DEPTH_MAX)?;
            }
        }
        Some(children)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*first)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.left = self.left.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// A number, seven bits a byte, the last of them first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number that may be negative: its sign is the last bit.
    fn signed(&mut self) -> Option<i64> {
        let coded = self.number()?;
        Some((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    /// The kind of a structure's next field, whose number becomes `id`; `Some(None)` at its end.
    fn field(&mut self, id: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head & 15 == 0 {
            return Some(None);
        }
        *id = match i16::from(head >> 4) {
            // Of a larger one the library takes the lower bits.
            0 => i16::try_from(self.signed()?).ok()?,
            more => id.checked_add(more)?,
        };
        Some(Some(head & 15))
    }

    /// The kind of a list's elements, and how many it says they are.
    fn count(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.number()?,
            few => few.into(),
        };
        Some((head & 15, count))
    }

    /// As [`Thrift::count`], if there is a byte at least for each of them.
    fn list(&mut self) -> Option<(u8, u64)> {
        let (kind, count) = self.count()?;
        (count <= self.left.len() as u64).then_some((kind, count))
    }

    /// Passes over the value of a field, in which others lie `depth` deep at most.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // The kind of a truth is its value.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.number().map(drop),
            7 => self.pass(8),
            8 => {
                let bytes = self.number()?;
                self.pass(bytes)
            }
            9 | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.element(kind, depth))
            }
            11 => {
                let count = self.number()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.element(kinds >> 4, depth)?;
                    self.element(kinds & 15, depth)
                })
            }
            12 => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            13 => self.pass(16),
            _ => None,
        }
    }

    /// As [`Thrift::skip`], where the kind is that of all elements. Truths have a byte each, but where the library passes over them it
    /// takes them for those of fields, which have none, and goes on in their midst. No list of them is known in a footer.
    fn element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { None } else { self.skip(kind, depth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of a version, a schema, no rows, and what comes then.
    fn footer(schema: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[0x15, 2, 0x19][..], schema, &[0x16, 0], rest, &[0]].concat()
    }

    fn schema(head: &[u8], nodes: &[&[u8]]) -> Vec<u8> {
        [head, &nodes.concat()].concat()
    }

    /// A node of a schema with a name and so many children, coded.
    fn node(children: &[u8]) -> Vec<u8> {
        [&[0x48, 1, b's', 0x15][..], children, &[0]].concat()
    }

    #[track_caller]
    fn refused(footer: &[u8], expect: &str) {
        let said = check_footer(footer).unwrap_err();
        assert!(said.contains(expect), "{said}, not {expect}");
    }

    /// The library takes memory for all children that a node speaks of, and calls itself for each that lies in another.
    #[test]
    fn a_schema_is_a_tree_of_its_nodes() {
        let of = |head: &[u8], nodes: &[&[u8]]| footer(&schema(head, nodes), &[0x19, 0x0c]);
        let (root, leaf) = (node(&[4]), [0x48, 1, b's', 0]);
        assert_eq!(check_footer(&of(&[0x3c], &[&root, &leaf, &leaf])), Ok(()));
        assert_eq!(check_footer(&of(&[0x1c], &[&node(&[0])])), Ok(()));
        // As many as can be said, as many as there are nodes, and fewer than none.
        refused(&of(&[0x2c], &[&node(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), &leaf]), "its schema");
        refused(&of(&[0x2c], &[&root, &leaf]), "its schema");
        refused(&of(&[0x2c], &[&node(&[1]), &leaf]), "damaged");
        let deep = |more: u8| of(&[0xfc, more | 0x80, 1], &[&node(&[2]).repeat(127 + usize::from(more)), &leaf]);
        assert_eq!(check_footer(&deep(0)), Ok(()));
        refused(&deep(1), "its schema");
    }

    /// The library reads what it knows by its number, whatever its kind: where they differ it went on in the midst of something else, and
    /// found lists there that nobody had looked at.
    #[test]
    fn fields_are_of_their_kinds() {
        let schema = schema(&[0x1c], &[&node(&[0])]);
        let with = |rest: &[u8]| check_footer(&footer(&schema, &[&[0x19, 0x0c][..], rest].concat()));
        // A creator; fields that are not known, of which one is far behind.
        let right: [&[u8]; 3] = [&[0x28, 1, b'x'], &[0x6c, 0x19, 0x25, 2, 4, 0], &[0x08, 0xc8, 1, 1, b'x', 0x19, 0x01]];
        for rest in right {
            assert_eq!(with(rest), Ok(()), "{rest:?}");
        }
        let wrong: [(&[u8], &str); 8] = [
            (&[0x25, 0x10], "a creator that is a number"),
            (&[0x1c, 0], "pairs that are no list"),
            (&[0x19, 0x15, 2], "pairs that are numbers"),
            (&[0x19, 0x1c, 0x15, 2, 0], "a key that is a number"),
            (&[0x69, 0x21, 1, 1], "truths, of which the library passes over none"),
            (&[0x6a, 0x12, 1], "a set of a truth"),
            (&[0x6b, 1, 0x81, 1, b'x', 1], "a map to a truth"),
            (&[0x05, 0x8c, 0x80, 0x08, 0], "field 65,542, of which the library makes 6"),
        ];
        for (rest, what) in wrong {
            assert_eq!(with(rest), Err("it is damaged".to_string()), "{what}");
        }
        // The statistics of a column, and a number in their place.
        assert_eq!(check_footer(&footer(&schema, &[0x19, 0x1c, 0x19, 0x1c, 0x3c, 0xcc, 0, 0, 0, 0])), Ok(()));
        refused(&footer(&schema, &[0x19, 0x1c, 0x19, 0x1c, 0x3c, 0xc5, 2, 0, 0, 0]), "damaged");
    }

    #[test]
    fn the_most_row_groups_and_pages() {
        let schema = schema(&[0x1c], &[&node(&[0])]);
        let groups =
            |more: u8| footer(&schema, &[&[0x19, 0xfc, more | 0x80, 0x80, 2][..], &vec![0_u8; 32_768 + usize::from(more)]].concat());
        assert_eq!(check_footer(&groups(0)), Ok(()));
        refused(&groups(1), "32769 row groups");
        let index = |pages: usize| [&[0x19_u8, 0x2c][..], &[0x16_u8, 2, 0x15, 2, 0x16, 0, 0].repeat(pages)].concat();
        assert_eq!([pages_fit(&index(2)), pages_fit(&index(1)), pages_fit(&[0x19, 0xfc]), pages_fit(&[0])], [true, false, false, true]);
    }
}
