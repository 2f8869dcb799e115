//! Columns by their names: which of the model's values they hold, in which type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, Int32Array, Int64Array, PrimitiveArray, StringArray, StructArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, take};
use arrow::datatypes::{
    DataType, Field, Fields, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};

use super::model::{Event, Kind, Lane, Model, Purpose};
use super::text::{self, Channels};
use crate::ConnectError;
use crate::datagen::columns::Column;
use crate::datagen::counter::{Span, Stripe};
use crate::datagen::random::{Generator, timeless};

const PERSON: &str = "id (BIGINT); name, emailAddress, creditCard, city, state, extra (STRING); dateTime (TIMESTAMP(3))";
const AUCTION: &str =
    "id, initialBid, reserve, seller, category (BIGINT); itemName, description, extra (STRING); dateTime, expires (TIMESTAMP(3))";
const BID: &str = "auction, bidder, price (BIGINT); channel, url, extra (STRING); dateTime (TIMESTAMP(3))";
const ALL: &str = "event_type (INT); person, auction, bid (ROW<…> with the columns of their tables); dateTime (TIMESTAMP(3))";

/// Bytes reserved for a text of unknown length.
const TEXT_BYTES_USUAL: usize = 128;

/// The column `field` of a table of one kind of event, or of all.
///
/// # Errors
/// A name that the model does not know, a type that does not fit; both list the names and types.
/// `owner` is the table, for the message.
pub fn column(model: &Arc<Model>, kind: Option<Kind>, owner: &str, field: &Field) -> Result<Column, ConnectError> {
    let (table, names) = match kind {
        None => ("all", ALL),
        Some(Kind::Person) => ("person", PERSON),
        Some(Kind::Auction) => ("auction", AUCTION),
        Some(Kind::Bid) => ("bid", BID),
    };
    // As Flink's own examples write them, or with underscores.
    let name = field.name().to_ascii_lowercase().replace('_', "");
    let maker = Maker { model, lane: model.lane(kind), data_type: field.data_type() };
    let made = match (kind, name.as_str()) {
        (_, "datetime") => {
            let disorder = model.stream(Purpose::Disorder);
            maker.time(move |model, lane, span| model.times(disorder, lane, span))
        }
        (None, "eventtype") => maker.number(|model, event| model.kind(event) as i64),
        (None, "person") => maker.row(Kind::Person, owner, field)?,
        (None, "auction") => maker.row(Kind::Auction, owner, field)?,
        (None, "bid") => maker.row(Kind::Bid, owner, field)?,
        (None, _) => None,
        (Some(Kind::Person), name) => maker.person(name),
        (Some(Kind::Auction), name) => maker.auction(name),
        (Some(Kind::Bid), name) => maker.bid(name),
    };
    made.ok_or_else(|| {
        ConnectError::new(format!(
            "{owner}: 'table' = '{table}' has no column '{}' of type {}; it has: {names}",
            field.name(),
            tidemill_format::types::type_name(field.data_type())
        ))
    })
}

struct Maker<'a> {
    model: &'a Arc<Model>,
    lane: Lane,
    data_type: &'a DataType,
}

impl Maker<'_> {
    fn person(&self, name: &str) -> Option<Column> {
        let stream = |purpose| self.model.stream(purpose);
        match name {
            "id" => self.number(Model::person_id),
            "name" => {
                let x = stream(Purpose::Name);
                self.text(text::NAME_BYTES_MAX, move |_, event, out| text::name(x.at(event.number), out))
            }
            "emailaddress" => {
                let x = stream(Purpose::Email);
                self.text(text::EMAIL_BYTES, move |model, event, out| text::email(&model.letters, x.at(event.number), out))
            }
            "creditcard" => {
                let x = stream(Purpose::Card);
                self.text(text::CARD_BYTES, move |_, event, out| text::card(x.at(event.number), out))
            }
            "city" => {
                let x = stream(Purpose::City);
                self.text(text::CITY_BYTES_MAX, move |_, event, out| out.extend_from_slice(text::city(x.at(event.number)).as_bytes()))
            }
            "state" => {
                let x = stream(Purpose::State);
                self.text(text::STATE_BYTES, move |_, event, out| out.extend_from_slice(text::state(x.at(event.number)).as_bytes()))
            }
            "extra" => {
                let x = stream(Purpose::PersonExtra);
                let padding = self.model.person_extra;
                self.text(padding.longest(), move |model, event, out| {
                    out.extend_from_slice(padding.of(&model.letters, x.at(event.number)));
                })
            }
            _ => None,
        }
    }

    fn auction(&self, name: &str) -> Option<Column> {
        let stream = |purpose| self.model.stream(purpose);
        match name {
            "id" => self.number(Model::auction_id),
            "itemname" => {
                let x = stream(Purpose::ItemName);
                self.text(text::ITEM_BYTES_MAX, move |model, event, out| {
                    out.extend_from_slice(model.letters.between(x.at(event.number), 3, text::ITEM_BYTES_MAX));
                })
            }
            "description" => {
                let x = stream(Purpose::Description);
                self.text(text::DESCRIPTION_BYTES_MAX, move |model, event, out| {
                    out.extend_from_slice(model.letters.between(x.at(event.number), 3, text::DESCRIPTION_BYTES_MAX));
                })
            }
            "initialbid" => {
                let x = stream(Purpose::InitialBid);
                self.number(move |model, event| model.price(x.at(event.number)))
            }
            "reserve" => {
                let (x, more) = (stream(Purpose::InitialBid), stream(Purpose::Reserve));
                self.number(move |model, event| model.price(x.at(event.number)) + model.price(more.at(event.number)))
            }
            "expires" => {
                let (x, disorder) = (stream(Purpose::Expires), stream(Purpose::Disorder));
                self.time(move |model, lane, span| lane.collect(span, |event| model.expires(x.at(event.number), disorder, event)))
            }
            "seller" => {
                let x = stream(Purpose::Seller);
                self.number(move |model, event| model.seller(x.at(event.number), event))
            }
            "category" => {
                let x = stream(Purpose::Category);
                self.number(move |model, event| model.category(x.at(event.number)))
            }
            "extra" => {
                let x = stream(Purpose::AuctionExtra);
                let padding = self.model.auction_extra;
                self.text(padding.longest(), move |model, event, out| {
                    out.extend_from_slice(padding.of(&model.letters, x.at(event.number)));
                })
            }
            _ => None,
        }
    }

    fn bid(&self, name: &str) -> Option<Column> {
        let stream = |purpose| self.model.stream(purpose);
        match name {
            "auction" => {
                let x = stream(Purpose::BidAuction);
                self.number(move |model, event| model.bid_auction(x.at(event.number), event))
            }
            "bidder" => {
                let x = stream(Purpose::Bidder);
                self.number(move |model, event| model.bidder(x.at(event.number), event))
            }
            "price" => {
                let x = stream(Purpose::Price);
                self.number(move |model, event| model.price(x.at(event.number)))
            }
            "channel" => {
                let x = stream(Purpose::Channel);
                self.text(text::CHANNEL_BYTES_MAX, move |model, event, out| {
                    out.extend_from_slice(model.channels().name(Channels::choose(x.at(event.number))));
                })
            }
            "url" => {
                let x = stream(Purpose::Channel);
                self.text(text::URL_BYTES_MAX, move |model, event, out| {
                    out.extend_from_slice(model.channels().url(Channels::choose(x.at(event.number))));
                })
            }
            "extra" => {
                let x = stream(Purpose::BidExtra);
                let padding = self.model.bid_extra;
                self.text(padding.longest(), move |model, event, out| {
                    out.extend_from_slice(padding.of(&model.letters, x.at(event.number)));
                })
            }
            _ => None,
        }
    }

    /// A column of whole numbers.
    fn number(&self, of: impl Fn(&Model, Event) -> i64 + Send + Sync + 'static) -> Option<Column> {
        let (model, lane) = (self.model.clone(), self.lane);
        let generator: Generator = match self.data_type {
            DataType::Int64 => timeless(move |span| Arc::new(Int64Array::from(lane.collect(span, |event| of(&model, event))))),
            DataType::Int32 => timeless(move |span| Arc::new(Int32Array::from(lane.collect(span, |event| of(&model, event) as i32)))),
            _ => return None,
        };
        Some(Column::endless(generator))
    }

    /// A column of times, which `of` makes in ms since 1970.
    fn time(&self, of: impl Fn(&Model, Lane, Span) -> Vec<i64> + Send + Sync + 'static) -> Option<Column> {
        let (model, lane) = (self.model.clone(), self.lane);
        let ms = move |span| of(&model, lane, span);
        let generator: Generator = match self.data_type {
            DataType::Int64 => timeless(move |span| Arc::new(Int64Array::from(ms(span)))),
            DataType::Timestamp(TimeUnit::Millisecond, _) => stamps::<TimestampMillisecondType>(self.data_type, ms),
            DataType::Timestamp(TimeUnit::Second, _) => {
                stamps::<TimestampSecondType>(self.data_type, move |span| ms(span).into_iter().map(|ms| ms.div_euclid(1_000)).collect())
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => stamps::<TimestampMicrosecondType>(self.data_type, move |span| {
                ms(span).into_iter().map(|ms| ms.wrapping_mul(1_000)).collect()
            }),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => stamps::<TimestampNanosecondType>(self.data_type, move |span| {
                ms(span).into_iter().map(|ms| ms.wrapping_mul(1_000_000)).collect()
            }),
            _ => return None,
        };
        Some(Column::endless(generator))
    }

    /// A column of texts of at most `bytes_max` bytes; `write` appends that of an event.
    fn text(&self, bytes_max: usize, write: impl Fn(&Model, Event, &mut Vec<u8>) + Send + Sync + 'static) -> Option<Column> {
        if *self.data_type != DataType::Utf8 {
            return None;
        }
        let (model, lane) = (self.model.clone(), self.lane);
        let generator: Generator = timeless(move |span| {
            let mut bytes = Vec::with_capacity(span.rows * bytes_max.min(TEXT_BYTES_USUAL));
            let mut offsets = Vec::with_capacity(span.rows + 1);
            offsets.push(0i32);
            lane.each(span, |event| {
                write(&model, event, &mut bytes);
                offsets.push(bytes.len() as i32);
            });
            assert!(bytes.len() <= i32::MAX as usize, "the reader bounds the bytes of a block");
            Arc::new(StringArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), None))
        });
        Some(Column { bytes_max, ..Column::endless(generator) })
    }

    /// A ROW for the events of one kind, NULL for the others. `None` if the column is no ROW.
    fn row(&self, kind: Kind, owner: &str, field: &Field) -> Result<Option<Column>, ConnectError> {
        let DataType::Struct(fields) = self.data_type else { return Ok(None) };
        if !field.is_nullable() {
            return Err(ConnectError::new(format!(
                "{owner}: column '{}' is NULL where the event is of another kind: it cannot be NOT NULL",
                field.name()
            )));
        }
        let columns = fields.iter().map(|f| column(self.model, Some(kind), owner, f)).collect::<Result<Vec<_>, _>>()?;
        let bytes_max = columns.iter().map(|c| c.bytes_max).max().unwrap_or(0);
        let generators: Vec<Generator> = columns.into_iter().map(|c| c.generator).collect();
        let (fields, own) = (fields.clone(), self.model.lane(Some(kind)));
        let generator: Generator = Arc::new(move |span: Span, now: i64| -> ArrayRef {
            let parts: Vec<ArrayRef> = span.ranges().map(|range| spread(&fields, &generators, own, range, now)).collect();
            match parts.as_slice() {
                [part] => part.clone(),
                parts => concat(&parts.iter().map(|p| p.as_ref()).collect::<Vec<_>>()).expect("parts of one type and of a block's size"),
            }
        });
        Ok(Some(Column { bytes_max, ..Column::endless(generator) }))
    }
}

/// The ROWs of `count` events from the event `first` on: those of the kind made together, and then
/// spread over the rows.
fn spread(fields: &Fields, generators: &[Generator], own: Lane, (first, count): (u64, usize), now: i64) -> ArrayRef {
    let begin = own.rows_below(first);
    let rows = (own.rows_below(first + count as u64) - begin) as usize;
    let indices: UInt32Array = (0..count as u64).map(|k| own.row(first + k).map(|row| (row - begin) as u32)).collect();
    let all = Stripe { index: 0, of: 1, chunk: 1 };
    let columns = generators
        .iter()
        .map(|generate| take(&generate(Span { stripe: all, rank: begin, rows }, now), &indices, None).expect("indices are in bounds"))
        .collect();
    Arc::new(StructArray::new(fields.clone(), columns, indices.nulls().cloned()))
}

/// Timestamps of the type wanted, which differs from the primitive type's own in its time zone.
fn stamps<P: ArrowPrimitiveType<Native = i64>>(
    data_type: &DataType,
    values: impl Fn(Span) -> Vec<i64> + Send + Sync + 'static,
) -> Generator {
    let data_type = data_type.clone();
    timeless(move |span| Arc::new(PrimitiveArray::<P>::new(values(span).into(), None).with_data_type(data_type.clone())))
}
