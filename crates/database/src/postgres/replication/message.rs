//! The messages of `pgoutput`, protocol version 1, as PostgreSQL's manual describes them ("Logical Replication Message
//! Formats"). Begin, Commit and Message are taken apart by the client below.

use super::super::wire::Wire;

/// A column of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelationColumn {
    /// It is of the replica identity.
    pub key: bool,
    pub name: String,
    /// The object identifier of its type.
    pub oid: u32,
}

/// A table as it was when the changes behind this message were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// What old rows hold: `d` the primary key, `n` nothing, `f` everything, `i` an index.
    pub identity: u8,
    pub columns: Vec<RelationColumn>,
}

/// A field of a row: where it lies in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Null,
    /// A large value that was not changed and is not sent.
    Unchanged,
    Text(usize, usize),
    Binary(usize, usize),
}

/// What an old row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Old {
    /// There is none.
    None,
    /// The columns of the replica identity.
    Key,
    /// All columns.
    Whole,
}

/// A message. The fields of rows are in [`Parser`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Relation(Relation),
    Insert(u32),
    Update(u32, Old),
    Delete(u32, Old),
    Truncate(Vec<u32>),
    /// Types, origins.
    Other,
}

/// Takes messages apart, and keeps the fields of the last.
#[derive(Default)]
pub(super) struct Parser {
    pub old: Vec<Field>,
    pub new: Vec<Field>,
}

impl Parser {
    /// Takes a message apart; fields are places in `data`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(&mut self, data: &[u8]) -> Result<Message, String> {
        let mut wire = Wire(data);
        self.old.clear();
        self.new.clear();
        let [kind] = wire.array::<1>()?;
        Ok(match kind {
            b'R' => Message::Relation(relation(&mut wire)?),
            b'I' => {
                let oid = number(&mut wire)?;
                match wire.array::<1>()? {
                    [b'N'] => tuple(&mut wire, data.len(), &mut self.new)?,
                    _ => return Err("an insert without a row".into()),
                }
                Message::Insert(oid)
            }
            b'U' => {
                let oid = number(&mut wire)?;
                let [mut next] = wire.array::<1>()?;
                let mut old = Old::None;
                if matches!(next, b'K' | b'O') {
                    old = if next == b'K' { Old::Key } else { Old::Whole };
                    tuple(&mut wire, data.len(), &mut self.old)?;
                    [next] = wire.array::<1>()?;
                }
                if next != b'N' {
                    return Err("an update without a new row".into());
                }
                tuple(&mut wire, data.len(), &mut self.new)?;
                Message::Update(oid, old)
            }
            b'D' => {
                let oid = number(&mut wire)?;
                let old = match wire.array::<1>()? {
                    [b'K'] => Old::Key,
                    [b'O'] => Old::Whole,
                    _ => return Err("a delete without an old row".into()),
                };
                tuple(&mut wire, data.len(), &mut self.old)?;
                Message::Delete(oid, old)
            }
            b'T' => {
                let count = number(&mut wire)?;
                wire.bytes(1)?;
                Message::Truncate((0..count).map(|_| number(&mut wire)).collect::<Result<_, _>>()?)
            }
            b'Y' | b'O' | b'M' => Message::Other,
            other => return Err(format!("a message of kind {other:#04x}, which is not known")),
        })
    }
}

fn number(wire: &mut Wire<'_>) -> Result<u32, String> {
    wire.array().map(u32::from_be_bytes)
}

/// Text up to a zero byte.
fn string(wire: &mut Wire<'_>) -> Result<String, String> {
    let end = memchr::memchr(0, wire.0).ok_or("is cut short")?;
    let text = wire.bytes(end)?;
    wire.bytes(1)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn relation(wire: &mut Wire<'_>) -> Result<Relation, String> {
    let oid = number(wire)?;
    let (schema, name) = (string(wire)?, string(wire)?);
    let [identity] = wire.array::<1>()?;
    let count = wire.i16()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let [flags] = wire.array::<1>()?;
        let (name, oid) = (string(wire)?, number(wire)?);
        // The modifier: lengths and scales make no difference to how values look.
        wire.i32()?;
        columns.push(RelationColumn { key: flags & 1 != 0, name, oid });
    }
    // What is no schema is that of the catalog.
    let schema = if schema.is_empty() { "pg_catalog".into() } else { schema };
    Ok(Relation { oid, schema, name, identity, columns })
}

/// The fields of a row; `length` is that of the message.
fn tuple(wire: &mut Wire<'_>, length: usize, fields: &mut Vec<Field>) -> Result<(), String> {
    let count = wire.i16()?;
    for _ in 0..count {
        let [kind] = wire.array::<1>()?;
        fields.push(match kind {
            b'n' => Field::Null,
            b'u' => Field::Unchanged,
            b't' | b'b' => {
                let size = usize::try_from(wire.i32()?).map_err(|_| "has a field of negative length")?;
                let from = length - wire.0.len();
                wire.bytes(size)?;
                if kind == b't' { Field::Text(from, from + size) } else { Field::Binary(from, from + size) }
            }
            other => return Err(format!("has a field of kind {other:#04x}, which is not known")),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `'R'` of table `s.t` with columns `id` (of the key) and `v`.
    const RELATION: &[u8] = b"R\0\0\x40\x01s\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff";

    #[test]
    fn messages_are_taken_apart() {
        let mut parser = Parser::default();
        let column = |key, name: &str, oid| RelationColumn { key, name: name.into(), oid };
        let relation = Relation {
            oid: 0x4001,
            schema: "s".into(),
            name: "t".into(),
            identity: b'd',
            columns: vec![column(true, "id", 23), column(false, "v", 25)],
        };
        assert_eq!(parser.parse(RELATION), Ok(Message::Relation(relation)));

        let insert = b"I\0\0\x40\x01N\0\x03b\0\0\0\x02abnt\0\0\0\0";
        assert_eq!(parser.parse(insert), Ok(Message::Insert(0x4001)));
        assert_eq!(parser.new, [Field::Binary(13, 15), Field::Null, Field::Text(21, 21)]);
        assert_eq!(&insert[13..15], b"ab");

        let update = b"U\0\0\0\x05K\0\x01b\0\0\0\x01xN\0\x02b\0\0\0\x01yu";
        assert_eq!(parser.parse(update), Ok(Message::Update(5, Old::Key)));
        assert_eq!(
            (parser.old.as_slice(), parser.new.as_slice()),
            (&[Field::Binary(13, 14)][..], &[Field::Binary(22, 23), Field::Unchanged][..])
        );
        assert_eq!(parser.parse(b"U\0\0\0\x05N\0\0"), Ok(Message::Update(5, Old::None)));

        assert_eq!(parser.parse(b"D\0\0\0\x05O\0\x01n"), Ok(Message::Delete(5, Old::Whole)));
        assert_eq!((parser.old.as_slice(), parser.new.len()), (&[Field::Null][..], 0));
        assert_eq!(parser.parse(b"T\0\0\0\x02\x01\0\0\0\x05\0\0\0\x06"), Ok(Message::Truncate(vec![5, 6])));
        assert_eq!(parser.parse(b"Y\0\0\0\x05"), Ok(Message::Other));
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let mut parser = Parser::default();
        let whole: [&[u8]; 4] = [RELATION, b"I\0\0\x40\x01N\0\x01b\0\0\0\x02ab", b"D\0\0\0\x05K\0\x01n", b"T\0\0\0\x01\0\0\0\0\x05"];
        for message in whole {
            assert!(parser.parse(message).is_ok());
            for length in 0..message.len() {
                assert!(parser.parse(&message[..length]).is_err(), "{:?}", &message[..length]);
            }
        }
        assert!(parser.parse(b"?").is_err());
    }
}
