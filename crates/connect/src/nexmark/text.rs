//! Texts: names, random letters, the channels of bids. Nothing is allocated a row: letters are copied
//! from a pool, channels and their addresses from a table.

use tidemill_block::value;

use crate::datagen::counter::{Stream, below};

/// Letters to begin at; a power of two. 64 KiB stay in the second-level cache.
const POOL: usize = 1 << 16;
/// The longest text besides the column extra, bytes.
const TEXT_BYTES_MAX: usize = 128;

const FIRST_NAMES: [&str; 12] = ["Anna", "Boris", "Carla", "David", "Elena", "Farid", "Grace", "Hugo", "Irene", "Jonas", "Keiko", "Luis"];
const LAST_NAMES: [&str; 10] = ["Abbott", "Berger", "Costa", "Dubois", "Ekman", "Fischer", "Garcia", "Horvat", "Ito", "Jansen"];
/// States of the American north-west and its neighbours, as the queries expect; each with two of its
/// cities, among which a person lives in any.
const STATES: [&str; 6] = ["OR", "ID", "CA", "WA", "AZ", "WY"];
const CITIES: [&str; 12] = [
    "Portland",
    "Salem",
    "Boise",
    "Nampa",
    "Los Angeles",
    "San Francisco",
    "Seattle",
    "Spokane",
    "Phoenix",
    "Tucson",
    "Cheyenne",
    "Casper",
];

/// The most bytes of these texts.
pub const NAME_BYTES_MAX: usize = 16;
pub const EMAIL_BYTES: usize = 7 + 1 + 5 + 4;
pub const CARD_BYTES: usize = 19;
pub const CITY_BYTES_MAX: usize = 16;
pub const STATE_BYTES: usize = 2;
pub const ITEM_BYTES_MAX: usize = 20;
pub const DESCRIPTION_BYTES_MAX: usize = 100;
pub const CHANNEL_BYTES_MAX: usize = 16;
pub const URL_BYTES_MAX: usize = 96;

/// A pool of random letters.
pub struct Letters(Vec<u8>);

impl Letters {
    /// A pool from which texts of up to `longest` letters can be taken.
    pub fn new(stream: Stream, longest: usize) -> Self {
        let length = POOL + longest.max(TEXT_BYTES_MAX);
        let words = (0..length.div_ceil(8) as u64).map(|word| stream.at(word).to_le_bytes());
        Letters(words.flatten().map(|byte| b'a' + ((byte as u16 * 26) >> 8) as u8).collect())
    }

    /// `length` letters, chosen by the lower 16 bits of `x`.
    #[inline(always)]
    pub fn take(&self, x: u64, length: usize) -> &[u8] {
        let begin = x as usize & (POOL - 1);
        &self.0[begin..begin + length]
    }

    /// From `least` to `most` letters; the length depends on the upper bits of `x`.
    #[inline(always)]
    pub fn between(&self, x: u64, least: usize, most: usize) -> &[u8] {
        self.take(x, least + below(x, (most - least + 1) as u64) as usize)
    }
}

/// How long the column extra is.
#[derive(Clone, Copy, Debug)]
pub struct Padding {
    least: usize,
    most: usize,
}

impl Padding {
    /// `average` bytes on the average, a fifth more or less.
    pub fn new(average: u64) -> Self {
        let average = average as usize;
        Padding { least: average - average / 5, most: average + average / 5 }
    }

    /// The longest, bytes.
    pub fn longest(&self) -> usize {
        self.most
    }

    /// The column of a row.
    #[inline(always)]
    pub fn of(self, letters: &Letters, x: u64) -> &[u8] {
        letters.between(x, self.least, self.most)
    }
}

/// A person's name.
#[inline]
pub fn name(x: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(FIRST_NAMES[below(x, FIRST_NAMES.len() as u64) as usize].as_bytes());
    out.push(b' ');
    out.extend_from_slice(LAST_NAMES[below(x << 32, LAST_NAMES.len() as u64) as usize].as_bytes());
}

/// An address for mail.
#[inline]
pub fn email(letters: &Letters, x: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(letters.take(x, 7));
    out.push(b'@');
    out.extend_from_slice(letters.take(x >> 32, 5));
    out.extend_from_slice(b".com");
}

/// The number of a credit card: four groups of four digits.
#[inline]
pub fn card(x: u64, out: &mut Vec<u8>) {
    for group in 0..4 {
        if group > 0 {
            out.push(b' ');
        }
        value::write_padded(out, below(x << (16 * group), 10_000), 4);
    }
}

/// A city.
pub fn city(x: u64) -> &'static str {
    CITIES[below(x, CITIES.len() as u64) as usize]
}

/// A state.
pub fn state(x: u64) -> &'static str {
    STATES[below(x, STATES.len() as u64) as usize]
}

/// The channels everybody knows; half of the bids come through them.
const HOT: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
/// The others.
const COLD: u64 = 10_000;
/// One in so many of the others has no number in its address.
const WITHOUT_ID: u64 = 10;

/// Names and addresses of channels, one behind the other.
pub struct Channels {
    names: Texts,
    urls: Texts,
}

#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    #[inline]
    fn get(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[begin..self.ends[index]]
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

impl Channels {
    /// All channels, their addresses by `stream`.
    pub fn new(letters: &Letters, stream: Stream) -> Self {
        let (mut names, mut urls) = (Texts::default(), Texts::default());
        for channel in 0..COLD + HOT.len() as u64 {
            let x = stream.at(channel);
            let hot = channel.checked_sub(COLD);
            match hot {
                Some(hot) => names.bytes.extend_from_slice(HOT[hot as usize].as_bytes()),
                None => {
                    names.bytes.extend_from_slice(b"channel-");
                    value::write_i64(&mut names.bytes, channel as i64);
                }
            }
            names.end();
            urls.bytes.extend_from_slice(b"https://www.nexmark.com/");
            for part in 0..3 {
                urls.bytes.extend_from_slice(letters.take(x >> (16 * part), 5));
                urls.bytes.push(b'/');
            }
            urls.bytes.extend_from_slice(b"item.htm?query=1");
            if hot.is_none() && below(x, WITHOUT_ID) > 0 {
                urls.bytes.extend_from_slice(b"&channel_id=");
                value::write_i64(&mut urls.bytes, (x >> 33) as i64);
            }
            urls.end();
        }
        Channels { names, urls }
    }

    /// The channel that a random number chooses.
    #[inline(always)]
    pub fn choose(x: u64) -> usize {
        let (hot, cold) = (COLD + (x >> 62), below(x, COLD));
        (if x & 1 == 0 { hot } else { cold }) as usize
    }

    /// The name of a channel.
    #[inline]
    pub fn name(&self, channel: usize) -> &[u8] {
        self.names.get(channel)
    }

    /// The address of a channel.
    #[inline]
    pub fn url(&self, channel: usize) -> &[u8] {
        self.urls.get(channel)
    }
}
