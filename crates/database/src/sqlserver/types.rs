//! The types of SQL Server's columns, as the server describes them with a result.
//!
//! What does not live here: which type a new column gets (`dialect`), values (`encode`, `read`).

use tiberius::{BaseMetaDataColumn, FixedLenType, MetaDataColumn, TypeInfo, VarLenContext, VarLenType};

/// The length that stands for `max`.
const MAX: usize = 0xFFFF;
/// The flag of a collation whose `varchar` is UTF-8, in its first 32 bits.
const UTF8: u32 = 1 << 26;

/// What a column holds, as far as writing asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bit,
    /// `tinyint` (unsigned), `smallint`, `int`, `bigint`: so many bytes.
    Int(u8),
    Real,
    Float,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Money,
    SmallMoney,
    Date,
    /// Digits of a second's fraction, as in the next two.
    Time(u8),
    DateTime2(u8),
    DateTimeOffset(u8),
    /// 1/300 of a second.
    DateTime,
    /// Minutes.
    SmallDateTime,
    Guid,
    /// `char` and `varchar`: bytes in the code page of the collation; no `max` is `max`.
    Char {
        fixed: bool,
        max: Option<u16>,
        utf8: bool,
    },
    /// `nchar` and `nvarchar`: so many pairs of bytes of UTF-16.
    NChar {
        fixed: bool,
        max: Option<u16>,
    },
    Binary {
        fixed: bool,
        max: Option<u16>,
    },
    /// `xml`, `sql_variant`, `text`, `ntext`, `image`, types of the CLR: read, if at all, and not written.
    Other,
}

impl Kind {
    /// Of the type that the server gives.
    pub fn of(info: &TypeInfo) -> Kind {
        match info {
            TypeInfo::FixedLen(fixed) => match fixed {
                FixedLenType::Bit => Kind::Bit,
                FixedLenType::Int1 => Kind::Int(1),
                FixedLenType::Int2 => Kind::Int(2),
                FixedLenType::Int4 => Kind::Int(4),
                FixedLenType::Int8 => Kind::Int(8),
                FixedLenType::Float4 => Kind::Real,
                FixedLenType::Float8 => Kind::Float,
                FixedLenType::Money => Kind::Money,
                FixedLenType::Money4 => Kind::SmallMoney,
                FixedLenType::Datetime => Kind::DateTime,
                FixedLenType::Datetime4 => Kind::SmallDateTime,
                FixedLenType::Null => Kind::Other,
            },
            TypeInfo::VarLenSized(sized) => Kind::sized(sized),
            TypeInfo::VarLenSizedPrecision { precision, scale, .. } => Kind::Decimal { precision: *precision, scale: *scale },
            TypeInfo::Xml { .. } | TypeInfo::Udt(_) => Kind::Other,
        }
    }

    fn sized(sized: &VarLenContext) -> Kind {
        let length = sized.len();
        let max = |unit: usize| (length < MAX).then_some((length / unit) as u16);
        let utf8 = sized.collation().is_some_and(|c| c.info() & UTF8 != 0);
        match (sized.r#type(), length) {
            (VarLenType::Bitn, _) => Kind::Bit,
            (VarLenType::Intn, 1 | 2 | 4 | 8) => Kind::Int(length as u8),
            (VarLenType::Floatn, 4) => Kind::Real,
            (VarLenType::Floatn, _) => Kind::Float,
            (VarLenType::Money, 4) => Kind::SmallMoney,
            (VarLenType::Money, _) => Kind::Money,
            (VarLenType::Datetimen, 4) => Kind::SmallDateTime,
            (VarLenType::Datetimen, _) => Kind::DateTime,
            (VarLenType::Daten, _) => Kind::Date,
            (VarLenType::Timen, _) => Kind::Time(length as u8),
            (VarLenType::Datetime2, _) => Kind::DateTime2(length as u8),
            (VarLenType::DatetimeOffsetn, _) => Kind::DateTimeOffset(length as u8),
            (VarLenType::Guid, _) => Kind::Guid,
            (VarLenType::BigVarChar, _) => Kind::Char { fixed: false, max: max(1), utf8 },
            (VarLenType::BigChar, _) => Kind::Char { fixed: true, max: max(1), utf8 },
            (VarLenType::NVarchar, _) => Kind::NChar { fixed: false, max: max(2) },
            (VarLenType::NChar, _) => Kind::NChar { fixed: true, max: max(2) },
            (VarLenType::BigVarBin, _) => Kind::Binary { fixed: false, max: max(1) },
            (VarLenType::BigBinary, _) => Kind::Binary { fixed: true, max: max(1) },
            _ => Kind::Other,
        }
    }

    /// The type in SQL; of [`Kind::Other`] what it is not.
    pub fn sql(self) -> String {
        let sized = |name: &str, max: Option<u16>| match max {
            Some(max) => format!("{name}({max})"),
            None => format!("{name}(max)"),
        };
        match self {
            Kind::Bit => "bit".into(),
            Kind::Int(1) => "tinyint".into(),
            Kind::Int(2) => "smallint".into(),
            Kind::Int(4) => "int".into(),
            Kind::Int(_) => "bigint".into(),
            Kind::Real => "real".into(),
            Kind::Float => "float".into(),
            Kind::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
            Kind::Money => "money".into(),
            Kind::SmallMoney => "smallmoney".into(),
            Kind::Date => "date".into(),
            Kind::Time(digits) => format!("time({digits})"),
            Kind::DateTime2(digits) => format!("datetime2({digits})"),
            Kind::DateTimeOffset(digits) => format!("datetimeoffset({digits})"),
            Kind::DateTime => "datetime".into(),
            Kind::SmallDateTime => "smalldatetime".into(),
            Kind::Guid => "uniqueidentifier".into(),
            Kind::Char { fixed: true, max, .. } => sized("char", max),
            Kind::Char { fixed: false, max, .. } => sized("varchar", max),
            Kind::NChar { fixed: true, max } => sized("nchar", max),
            Kind::NChar { fixed: false, max } => sized("nvarchar", max),
            Kind::Binary { fixed: true, max } => sized("binary", max),
            Kind::Binary { fixed: false, max } => sized("varbinary", max),
            Kind::Other => "a type that is not written".into(),
        }
    }

    /// The type in which values travel in a bulk load. `varchar` in UTF-8 goes as UTF-16: clients that have not said
    /// that they know UTF-8 may not send it.
    pub fn carrier(self) -> Kind {
        match self {
            Kind::Char { max, utf8: true, .. } => Kind::NChar { fixed: false, max: max.filter(|n| *n <= 4000) },
            other => other,
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    pub name: String,
    pub kind: Kind,
    /// The type in SQL.
    pub type_text: String,
    pub nullable: bool,
    /// Whether a value can be given: not for computed columns and row versions.
    pub writable: bool,
    /// What the server says of text's collation.
    pub collation: Option<tiberius::Collation>,
    /// The collation's name, if it was asked for and is known.
    pub collation_name: Option<String>,
}

impl TableColumn {
    /// Of a column that the server describes.
    pub fn of(column: &MetaDataColumn<'_>) -> Self {
        let base: &BaseMetaDataColumn = column.base();
        let kind = Kind::of(base.ty());
        let collation = match base.ty() {
            TypeInfo::VarLenSized(sized) => sized.collation(),
            _ => None,
        };
        let type_text = if kind == Kind::Other { other(base.ty()).to_string() } else { kind.sql() };
        let writable = base.is_updateable() || base.is_identity();
        let (name, nullable) = (column.col_name().to_string(), base.is_nullable());
        TableColumn { name, kind, type_text, nullable, writable, collation, collation_name: None }
    }

    /// Whether it is text, which is compared by a collation.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Char { .. } | Kind::NChar { .. })
    }

    /// A column that a parameter is made for.
    pub fn parameter(name: &str, kind: Kind) -> Self {
        let (name, type_text) = (name.to_string(), kind.sql());
        TableColumn { name, kind, type_text, nullable: true, writable: true, collation: None, collation_name: None }
    }
}

/// The name of a type that is not written.
fn other(info: &TypeInfo) -> &str {
    match info {
        TypeInfo::Xml { .. } => "xml",
        TypeInfo::Udt(udt) => &udt.type_name,
        TypeInfo::VarLenSized(sized) => match sized.r#type() {
            VarLenType::Text => "text",
            VarLenType::NText => "ntext",
            VarLenType::Image => "image",
            VarLenType::SSVariant => "sql_variant",
            _ => "an unknown type",
        },
        _ => "an unknown type",
    }
}

#[cfg(test)]
mod tests {
    use tiberius::Collation;

    use super::*;

    #[track_caller]
    fn check(r#type: VarLenType, length: usize, expect: &str) {
        let info = TypeInfo::VarLenSized(VarLenContext::new(r#type, length, None));
        assert_eq!(Kind::of(&info).sql(), expect);
    }

    #[test]
    fn types_have_names() {
        check(VarLenType::Intn, 1, "tinyint");
        check(VarLenType::Datetimen, 4, "smalldatetime");
        check(VarLenType::Timen, 3, "time(3)");
        check(VarLenType::DatetimeOffsetn, 7, "datetimeoffset(7)");
        check(VarLenType::NVarchar, 8000, "nvarchar(4000)");
        check(VarLenType::NVarchar, 0xFFFF, "nvarchar(max)");
        check(VarLenType::BigChar, 3, "char(3)");
        check(VarLenType::BigVarBin, 0xFFFF, "varbinary(max)");
        check(VarLenType::Money, 8, "money");
        let decimal = TypeInfo::VarLenSizedPrecision { ty: VarLenType::Numericn, size: 17, precision: 38, scale: 10 };
        assert_eq!(Kind::of(&decimal).sql(), "decimal(38,10)");
        assert_eq!(Kind::of(&TypeInfo::FixedLen(FixedLenType::Int8)), Kind::Int(8));
        assert_eq!(Kind::of(&TypeInfo::Xml { schema: None, size: 0 }), Kind::Other);
    }

    #[test]
    fn utf8_travels_as_utf16() {
        let utf8 = VarLenContext::new(VarLenType::BigVarChar, 50, Some(Collation::new(UTF8 | 0x0409, 0)));
        assert_eq!(Kind::sized(&utf8).carrier().sql(), "nvarchar(50)");
        let latin = VarLenContext::new(VarLenType::BigVarChar, 50, Some(Collation::new(0x0409, 0)));
        assert_eq!(Kind::sized(&latin).carrier().sql(), "varchar(50)");
    }
}
