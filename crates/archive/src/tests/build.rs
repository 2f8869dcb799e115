//! Writes archives, record by record, as a test wants them: sound by default, wrong where it says so.

use std::io::Write;

/// What stands behind a member's data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tail {
    /// Nothing: lengths and checksum are in the header.
    None,
    /// Lengths and checksum: with a mark or not, in 8 bytes or 4.
    Descriptor { marked: bool, wide: bool },
}

/// A member of a zip to be written.
#[derive(Clone)]
pub struct Entry {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    pub method: u16,
    pub tail: Tail,
    /// Length and packed length that the header gives of a member with a tail; most give none, which is zeros.
    pub header: (u64, u64),
    /// Lengths and place are in the extra field, the others say so.
    pub zip64: bool,
    /// The extra field is left out all the same.
    pub without_zip64: bool,
    pub flags: u16,
    pub made_by: u16,
    pub attributes: u32,
    /// Taken into the checksum wherever it is written.
    pub crc_wrong: u32,
    /// Added to the length wherever it is written.
    pub size_wrong: u64,
    /// The method as it is written.
    pub method_told: u16,
}

pub fn entry(name: &str, data: &[u8], method: u16) -> Entry {
    Entry {
        name: name.as_bytes().to_vec(),
        data: data.to_vec(),
        method,
        tail: Tail::None,
        header: (0, 0),
        zip64: false,
        without_zip64: false,
        flags: 0,
        made_by: 20,
        attributes: 0,
        crc_wrong: 0,
        size_wrong: 0,
        method_told: method,
    }
}

pub fn packed(data: &[u8], method: u16) -> Vec<u8> {
    match method {
        8 => {
            let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(4));
            out.write_all(data).unwrap();
            out.finish().unwrap()
        }
        12 => {
            let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
            out.write_all(data).unwrap();
            out.finish().unwrap()
        }
        93 => zstd::stream::encode_all(data, 3).unwrap(),
        95 => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
            out.write_all(data).unwrap();
            out.finish().unwrap()
        }
        _ => data.to_vec(),
    }
}

/// A zip that grows.
#[derive(Default)]
pub struct Zip {
    pub bytes: Vec<u8>,
    pub central: Vec<u8>,
    pub entries: u64,
    /// Write the records of zip64 behind the directory.
    pub zip64: bool,
    pub comment: Vec<u8>,
    /// Numbers of disks in the end record.
    pub disk: u16,
}

fn put(out: &mut Vec<u8>, fields: &[(u64, usize)]) {
    for (value, bytes) in fields {
        out.extend_from_slice(&value.to_le_bytes()[..*bytes]);
    }
}

impl Zip {
    /// Adds a member, with its entry in the directory.
    pub fn add(mut self, entry: &Entry) -> Zip {
        let offset = self.bytes.len() as u64;
        let data = packed(&entry.data, entry.method);
        let crc = u64::from(crc32fast::hash(&entry.data) ^ entry.crc_wrong);
        let (pack, size) = (data.len() as u64, (entry.data.len() as u64).wrapping_add(entry.size_wrong));
        let described = entry.tail != Tail::None;
        let flags = u64::from(entry.flags | if described { 8 } else { 0 });
        let method = u64::from(entry.method_told);
        let name = entry.name.len() as u64;
        let told = |value: u64| if entry.zip64 { u64::from(u32::MAX) } else { value };

        let here = |value: u64| if described { 0 } else { value };
        let (size_here, pack_here) = if described { entry.header } else { (size, pack) };
        let mut extra = Vec::new();
        if entry.zip64 && !entry.without_zip64 {
            put(&mut extra, &[(1, 2), (16, 2), (size_here, 8), (pack_here, 8)]);
        }
        put(&mut self.bytes, &[(0x0403_4b50, 4), (20, 2), (flags, 2), (method, 2), (0, 4), (here(crc), 4)]);
        put(&mut self.bytes, &[(told(pack_here), 4), (told(size_here), 4), (name, 2), (extra.len() as u64, 2)]);
        self.bytes.extend_from_slice(&entry.name);
        self.bytes.extend_from_slice(&extra);
        self.bytes.extend_from_slice(&data);
        if let Tail::Descriptor { marked, wide } = entry.tail {
            if marked {
                put(&mut self.bytes, &[(0x0807_4b50, 4)]);
            }
            let bytes = if wide { 8 } else { 4 };
            put(&mut self.bytes, &[(crc, 4), (pack, bytes), (size, bytes)]);
        }

        let mut extra = Vec::new();
        if entry.zip64 && !entry.without_zip64 {
            // After a field that nobody here knows.
            put(&mut extra, &[(0x7777, 2), (3, 2), (7, 3), (1, 2), (24, 2), (size, 8), (pack, 8), (offset, 8)]);
        }
        let central = &mut self.central;
        put(central, &[(0x0201_4b50, 4), (u64::from(entry.made_by), 2), (20, 2), (flags, 2), (method, 2), (0, 4), (crc, 4)]);
        put(central, &[(told(pack), 4), (told(size), 4), (name, 2), (extra.len() as u64, 2), (0, 2), (0, 2), (0, 2)]);
        put(central, &[(u64::from(entry.attributes), 4), (told(offset), 4)]);
        central.extend_from_slice(&entry.name);
        central.extend_from_slice(&extra);
        self.entries += 1;
        self
    }

    pub fn finish(self) -> Vec<u8> {
        let (offset, size) = (self.bytes.len() as u64, self.central.len() as u64);
        self.finish_at(offset, size)
    }

    /// With another place of the directory in the end record.
    pub fn finish_at(self, offset: u64, size: u64) -> Vec<u8> {
        let mut out = self.bytes;
        let disk = u64::from(self.disk);
        out.extend_from_slice(&self.central);
        let (mut entries, mut narrow) = (self.entries, (size, offset));
        if self.zip64 {
            let at = out.len() as u64;
            put(&mut out, &[(0x0606_4b50, 4), (44, 8), (45, 2), (45, 2), (disk, 4), (disk, 4)]);
            put(&mut out, &[(entries, 8), (entries, 8), (size, 8), (offset, 8)]);
            put(&mut out, &[(0x0706_4b50, 4), (0, 4), (at, 8), (1, 4)]);
            (entries, narrow) = (0xFFFF, (u64::from(u32::MAX), u64::from(u32::MAX)));
        }
        put(&mut out, &[(0x0605_4b50, 4), (disk, 2), (disk, 2), (entries, 2), (entries, 2), (narrow.0, 4), (narrow.1, 4)]);
        put(&mut out, &[(self.comment.len() as u64, 2)]);
        out.extend_from_slice(&self.comment);
        out
    }
}

/// A tar that grows.
#[derive(Default)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    /// Adds a header and data, in whole blocks.
    pub fn add(self, kind: u8, name: &str, data: &[u8]) -> Tar {
        let size = format!("{:011o}\0", data.len());
        self.header(kind, name, size.as_bytes(), "").data(data)
    }

    /// Adds a header alone. `size` are the 12 bytes of its field.
    pub fn header(mut self, kind: u8, name: &str, size: &[u8], prefix: &str) -> Tar {
        let mut block = [0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(size);
        block[148..156].fill(b' ');
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
        self
    }

    pub fn data(mut self, data: &[u8]) -> Tar {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}
