//! Bulk loads: the message that follows `INSERT BULK` ([MS-TDS] 2.2.6.1), and what the server answers to it.
//!
//! The message is a result the other way round: a description of the columns, rows, an end. It is written to the
//! stream under the client, which has nothing under way at that moment. Why not by the client's own bulk load: it
//! takes rows as lists of values, with an allocation for each and one for each text, and declares some types
//! (`time(3)`, `nvarchar(4000)`, `smalldatetime`) as others than it sends.

use std::io;

use super::dialect::quoted;
use super::encode::{Sent, utf16};
use super::stream::{END_OF_MESSAGE, HEADER_BYTES, PACKET_BYTES, Wire, header};

/// The type of packets of a bulk load.
const BULK_LOAD: u8 = 0x07;
/// Bytes of rows that are made before they go into packets.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of the token that ends a message, with its type: status, command, number of rows.
const DONE_BYTES: usize = 13;

/// Tokens of what is sent and answered ([MS-TDS] 2.2.7).
mod token {
    pub const RETURN_STATUS: u8 = 0x79;
    pub const COLUMNS: u8 = 0x81;
    pub const ORDER: u8 = 0xA9;
    pub const ERROR: u8 = 0xAA;
    pub const INFO: u8 = 0xAB;
    pub const LOGIN_ACK: u8 = 0xAD;
    pub const ROW: u8 = 0xD1;
    pub const ENVIRONMENT: u8 = 0xE3;
    pub const DONE: u8 = 0xFD;
    pub const DONE_IN_PROC: u8 = 0xFF;
}

/// What changes in the environment: the size of packets, the end of a transaction.
mod change {
    pub const PACKET_SIZE: u8 = 4;
    pub const COMMITTED: u8 = 9;
    pub const ROLLED_BACK: u8 = 10;
    pub const DEFECT: u8 = 12;
    pub const ENDED: u8 = 17;
}

/// `INSERT BULK` for columns. `checked`: constraints hold and triggers run as for other statements. NULL stays NULL
/// rather than becoming a default.
pub(super) fn insert_bulk(table: &str, columns: &[Sent<'_>], checked: bool) -> String {
    let typed = |sent: &Sent<'_>| {
        let carrier = sent.column.kind.carrier();
        format!("{} {}", quoted(&sent.column.name), carrier.sql())
    };
    let columns: Vec<String> = columns.iter().map(typed).collect();
    let options = if checked { "KEEP_NULLS, CHECK_CONSTRAINTS, FIRE_TRIGGERS" } else { "KEEP_NULLS, TABLOCK" };
    format!("INSERT BULK {table} ({}) WITH ({options})", columns.join(", "))
}

/// Sends rows and reads the answer. `packet`: bytes of a packet, as agreed upon with the login.
///
/// # Errors
/// Of the stream; an answer that is none.
pub(super) fn load(wire: &mut Wire, columns: &[Sent<'_>], rows: usize, packet: usize) -> io::Result<Answer> {
    let mut message = Message { wire, packet, bytes: Vec::with_capacity(PIECE_BYTES + (PIECE_BYTES >> 2)), number: 0 };
    describe(columns, &mut message.bytes);
    for row in 0..rows {
        message.bytes.push(token::ROW);
        for column in columns {
            column.write(row, &mut message.bytes);
        }
        if message.bytes.len() >= PIECE_BYTES {
            message.cut(false)?;
        }
    }
    message.bytes.push(token::DONE);
    // Status, command, number of rows: nothing of it is looked at.
    message.bytes.extend_from_slice(&[0; 12]);
    message.cut(true)?;
    message.wire.send()?;
    let answer = message.wire.message()?;
    let found = Answer::of(&answer).map_err(io::Error::other)?;
    if found.refusal.is_none() && !ends_well(&answer) {
        // Behind what a trigger has selected, which is not read.
        let why = "the server reports an error behind the result of a trigger; a trigger that selects nothing would let it be seen";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(found)
}

/// Whether the token that ends a message says that the statement was done ([MS-TDS] 2.2.7.6).
fn ends_well(message: &[u8]) -> bool {
    const ERROR: u16 = 0x2;
    const SEVERE_ERROR: u16 = 0x100;
    match message.last_chunk::<DONE_BYTES>() {
        Some([token::DONE..=token::DONE_IN_PROC, low, high, ..]) => u16::from_le_bytes([*low, *high]) & (ERROR | SEVERE_ERROR) == 0,
        _ => false,
    }
}

/// The description of columns: all may be NULL, whatever the table says, since values with a length are the same for
/// both.
fn describe(columns: &[Sent<'_>], out: &mut Vec<u8>) {
    out.push(token::COLUMNS);
    out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
    for sent in columns {
        // A user's type; flags: may be NULL, may be written.
        out.extend_from_slice(&[0, 0, 0, 0, 9, 0]);
        sent.describe(out);
        let at = out.len();
        out.push(0);
        let bytes = utf16(&sent.column.name, out);
        out[at] = (bytes / 2) as u8;
    }
}

/// A message under way.
struct Message<'a> {
    wire: &'a mut Wire,
    packet: usize,
    /// What is in no packet yet.
    bytes: Vec<u8>,
    /// Counts packets, as far as a byte does.
    number: u8,
}

impl Message<'_> {
    /// Puts into packets what fills them; the rest, too, if it is the `last`.
    fn cut(&mut self, last: bool) -> io::Result<()> {
        let most = self.packet - HEADER_BYTES;
        let mut rest = self.bytes.as_slice();
        while rest.len() > most || (last && !rest.is_empty()) {
            let (part, behind) = rest.split_at(rest.len().min(most));
            let status = if last && behind.is_empty() { END_OF_MESSAGE } else { 0 };
            self.number = self.number.wrapping_add(1);
            self.wire.put(&header(BULK_LOAD, status, part.len(), self.number))?;
            self.wire.put(part)?;
            rest = behind;
        }
        let left = rest.len();
        let from = self.bytes.len() - left;
        self.bytes.copy_within(from.., 0);
        self.bytes.truncate(left);
        Ok(())
    }
}

/// What the server answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The first error.
    pub refusal: Option<Refusal>,
    /// The server has ended the open transaction.
    pub transaction_ended: bool,
    /// The size of packets from now on.
    pub packet: Option<usize>,
}

/// An error of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub number: u32,
    pub severity: u8,
    pub message: String,
}

impl Answer {
    /// Of the payload of a message, up to the first token that is none of these.
    ///
    /// # Errors
    /// It is cut short.
    pub fn of(mut bytes: &[u8]) -> Result<Self, &'static str> {
        let mut answer = Answer::default();
        while let Some((token, rest)) = bytes.split_first() {
            let length = match *token {
                token::DONE..=token::DONE_IN_PROC => 12,
                token::RETURN_STATUS => 4,
                token::ERROR | token::INFO | token::ENVIRONMENT | token::ORDER | token::LOGIN_ACK => {
                    2 + usize::from(u16::from_le_bytes([*rest.first().unwrap_or(&0), *rest.get(1).unwrap_or(&0)]))
                }
                _ => break,
            };
            let (body, behind) = rest.split_at_checked(length).ok_or("the server's answer is cut short")?;
            match *token {
                token::ERROR if answer.refusal.is_none() => answer.refusal = Some(Refusal::of(&body[2..])),
                token::ENVIRONMENT => answer.changed(&body[2..]),
                _ => {}
            }
            bytes = behind;
        }
        Ok(answer)
    }

    fn changed(&mut self, body: &[u8]) {
        match body {
            [change::PACKET_SIZE, characters, value @ ..] => {
                let digits = value.chunks_exact(2).take(usize::from(*characters)).map(|pair| char::from(pair[0]));
                self.packet = digits.collect::<String>().parse().ok().filter(|size| (512..=32_767).contains(size));
            }
            [change::COMMITTED | change::ROLLED_BACK | change::DEFECT | change::ENDED, ..] => self.transaction_ended = true,
            _ => {}
        }
    }

    /// The size of packets, or what it is where nothing was said.
    pub fn packet_bytes(&self) -> usize {
        self.packet.unwrap_or(PACKET_BYTES)
    }
}

impl Refusal {
    /// Number, state, severity, characters of the message, the message.
    fn of(body: &[u8]) -> Self {
        let number = body.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let severity = body.get(5).copied().unwrap_or(0);
        let characters = body.get(6..8).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
        let text = body.get(8..).unwrap_or_default().chunks_exact(2).take(characters);
        let units: Vec<u16> = text.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        Refusal { number, severity, message: String::from_utf16_lossy(&units) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a trigger selects ended the reading of the answer, and the error behind it was not seen.
    #[test]
    fn errors_behind_results_are_noticed() {
        let ended = |status: u8| [&[token::COLUMNS, 1, 0, 7][..], &[token::DONE, status], &[0; 11]].concat();
        assert_eq!(Answer::of(&ended(2)).unwrap(), Answer::default());
        let judged = [0x00, 0x10, 0x02, 0x12].map(|status| ends_well(&ended(status)));
        assert_eq!(judged, [true, true, false, false]);
        assert!(!ends_well(&[]) && !ends_well(&[0; 20]));
    }

    #[test]
    fn answers_are_understood() {
        let text = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let sized = |token: u8, body: &[u8]| [&[token][..], &(body.len() as u16).to_le_bytes(), body].concat();
        let error = [&2627u32.to_le_bytes()[..], &[1, 14], &3u16.to_le_bytes(), &text("twö")[..], &[0, 0, 1, 0, 0, 0]].concat();
        let bytes = [
            sized(token::ENVIRONMENT, &[&[4, 4][..], &text("8000")[..], &[4], &text("4096")[..]].concat()),
            sized(token::INFO, &[0; 20]),
            sized(token::ERROR, &error),
            sized(token::ERROR, &[0; 16]),
            sized(token::ENVIRONMENT, &[10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
            vec![token::DONE; 13],
        ]
        .concat();
        let answer = Answer::of(&bytes).unwrap();
        assert_eq!(answer.refusal, Some(Refusal { number: 2627, severity: 14, message: "twö".into() }));
        assert!(answer.transaction_ended);
        assert_eq!(answer.packet_bytes(), 8000);
        assert!(Answer::of(&bytes[..bytes.len() - 1]).is_err());
        assert_eq!(Answer::of(&[]).unwrap().packet_bytes(), PACKET_BYTES);
    }
}
