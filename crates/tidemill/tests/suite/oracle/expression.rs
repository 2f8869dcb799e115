//! Random expressions over the columns of `events`, by type. Numbers stay small and no divisor is
//! zero, so that an expression has a value for every row.

use super::random::Random;

/// What a column of a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Double,
    Text,
    Bool,
    Time,
}

impl Kind {
    /// The type of a sink's column.
    pub fn sql(self) -> &'static str {
        match self {
            Kind::Int => "BIGINT",
            Kind::Double => "DOUBLE",
            Kind::Text => "STRING",
            Kind::Bool => "BOOLEAN",
            Kind::Time => "TIMESTAMP(3)",
        }
    }

    pub fn any(random: &mut Random) -> Kind {
        *random.pick(&[&Kind::Int, &Kind::Int, &Kind::Double, &Kind::Text, &Kind::Bool, &Kind::Time])
    }
}

/// An expression of a type, at most so deep.
pub fn of(random: &mut Random, kind: Kind, depth: u32) -> String {
    match kind {
        Kind::Int => int(random, depth),
        Kind::Double => double(random, depth),
        Kind::Text => text(random, depth),
        Kind::Bool => truth(random, depth),
        Kind::Time => "t".to_string(),
    }
}

fn literal(random: &mut Random) -> String {
    match random.between(-9, 20) {
        n if n < 0 => format!("({n})"),
        n => n.to_string(),
    }
}

fn case(random: &mut Random, depth: u32, branch: fn(&mut Random, u32) -> String) -> String {
    let mut out = "CASE".to_string();
    for _ in 0..random.between(1, 2) {
        out += &format!(" WHEN {} THEN {}", truth(random, depth), branch(random, depth));
    }
    if random.chance(70) {
        out += &format!(" ELSE {}", branch(random, depth));
    }
    out + " END"
}

pub fn int(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.chance(20) {
        return match random.between(0, 6) {
            0 => literal(random),
            n => ["x", "x", "x", "g", "g", "id"][n as usize - 1].to_string(),
        };
    }
    let d = depth - 1;
    match random.between(0, 8) {
        0 => format!("({} + {})", int(random, d), int(random, d)),
        1 => format!("({} - {})", int(random, d), int(random, d)),
        2 => format!("({} * {})", int(random, d), random.between(0, 5)),
        3 => format!("({} / NULLIF({}, 0))", int(random, d), int(random, d)),
        4 => format!("MOD({}, {})", int(random, d), random.between(2, 9)),
        5 => case(random, d, int),
        6 => format!("COALESCE({}, {})", int(random, d), int(random, d)),
        7 => format!("CHAR_LENGTH({})", text(random, d)),
        _ => format!("(- {})", int(random, d)),
    }
}

pub fn double(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.chance(20) {
        return random.pick(&["y", "y", "y", "0.5", "2.25", "0.1", "CAST(x AS DOUBLE)", "CAST(g AS DOUBLE)"]).to_string();
    }
    let d = depth - 1;
    match random.between(0, 7) {
        0 => format!("({} + {})", double(random, d), double(random, d)),
        1 => format!("({} - {})", double(random, d), double(random, d)),
        2 => format!("({} * {})", double(random, d), double(random, d)),
        3 => format!("({} / NULLIF({}, 0))", double(random, d), int(random, d)),
        4 => format!("({} + {})", int(random, d), double(random, d)),
        5 => case(random, d, double),
        6 => format!("COALESCE({}, {})", double(random, d), double(random, d)),
        _ => format!("FLOOR({})", double(random, d)),
    }
}

pub fn text(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.chance(20) {
        return random.pick(&["k", "k", "k", "'a'", "'it''s'"]).to_string();
    }
    let d = depth - 1;
    match random.between(0, 6) {
        0 => format!("UPPER({})", text(random, d)),
        1 => format!("LOWER({})", text(random, d)),
        2 => format!("SUBSTRING({}, {}, {})", text(random, d), random.between(1, 3), random.between(0, 4)),
        3 => format!("({} || {})", text(random, d), text(random, d)),
        4 => format!("CAST({} AS STRING)", int(random, d)),
        5 => case(random, d, text),
        _ => format!("COALESCE({}, 'none')", text(random, d)),
    }
}

pub fn truth(random: &mut Random, depth: u32) -> String {
    let compare = |random: &mut Random| random.pick(&["=", "<>", "<", "<=", ">", ">="]);
    if depth == 0 || random.chance(30) {
        let from = random.between(-500, 300);
        return match random.between(0, 7) {
            0 => format!("x {} {}", compare(random), from),
            1 => format!("y {} {}", compare(random), literal(random)),
            2 => format!("g {} {}", compare(random), random.between(-3, 3)),
            3 => format!("k {} '{}'", random.pick(&["=", "<>", ">"]), random.pick(&["a", "b", "bb"])),
            4 => format!("{} IS {}NULL", random.pick(&["k", "x", "y"]), random.pick(&["", "NOT "])),
            5 => format!("k {}IN ('a', 'bb', 'zzz')", random.pick(&["", "NOT "])),
            6 => format!("x {}BETWEEN {} AND {}", random.pick(&["", "NOT "]), from, from + random.between(0, 900)),
            _ => format!("k LIKE '{}'", random.pick(&["a%", "%b", "_", "%"])),
        };
    }
    let d = depth - 1;
    match random.between(0, 6) {
        0 | 1 => format!("({} AND {})", truth(random, d), truth(random, d)),
        2 | 3 => format!("({} OR {})", truth(random, d), truth(random, d)),
        4 => format!("(NOT {})", truth(random, d)),
        5 => format!("({} {} {})", int(random, d), compare(random), int(random, d)),
        _ => format!("({} {} {})", double(random, d), compare(random), double(random, d)),
    }
}

/// ` WHERE …`, or nothing.
pub fn maybe_where(random: &mut Random) -> String {
    if random.chance(50) { format!(" WHERE {}", truth(random, 2)) } else { String::new() }
}

/// An aggregate call and its type. Doubles that go in are never a negative zero: which of the two
/// zeros is the MIN would depend on their order.
pub fn aggregate(random: &mut Random) -> (String, Kind) {
    let kind = *random.pick(&[&Kind::Int, &Kind::Int, &Kind::Int, &Kind::Double, &Kind::Double, &Kind::Text, &Kind::Time]);
    (aggregate_of(random, kind), kind)
}

fn aggregate_of(random: &mut Random, kind: Kind) -> String {
    let call = match kind {
        Kind::Int => match random.between(0, 11) {
            0 | 1 => "COUNT(*)".to_string(),
            2 => format!("COUNT({})", random.pick(&["x", "y", "k"])),
            3 => "SUM(x)".to_string(),
            4 => "SUM(g)".to_string(),
            5 => format!("{}(x)", random.pick(&["MIN", "MAX"])),
            6 => "AVG(x)".to_string(),
            7 => format!("COUNT(DISTINCT {})", random.pick(&["k", "g", "x"])),
            8 => "SUM(DISTINCT g)".to_string(),
            9 => format!("SUM({})", int(random, 1)),
            10 => format!("{}({})", random.pick(&["MIN", "MAX"]), int(random, 1)),
            _ => return format!("{} + {}", aggregate_of(random, Kind::Int), aggregate_of(random, Kind::Int)),
        },
        Kind::Double => match random.between(0, 3) {
            0 => "SUM(y)".to_string(),
            1 => "AVG(y)".to_string(),
            2 => format!("{}(y)", random.pick(&["MIN", "MAX"])),
            _ => "SUM(y + x)".to_string(),
        },
        Kind::Text => format!("{}(k)", random.pick(&["MIN", "MAX"])),
        Kind::Time => format!("{}(t)", random.pick(&["MIN", "MAX"])),
        Kind::Bool => unreachable!("no aggregate gives a BOOLEAN here"),
    };
    if random.chance(20) { format!("{call} FILTER (WHERE {})", truth(random, 1)) } else { call }
}

/// ` HAVING …`, or nothing.
pub fn maybe_having(random: &mut Random) -> String {
    if random.chance(75) {
        return String::new();
    }
    let condition = random.pick(&[
        "COUNT(*) > 1",
        "COUNT(*) < 4",
        "SUM(x) > 0",
        "MAX(y) < 50 AND COUNT(x) >= 1",
        "MIN(x) IS NULL OR MIN(x) < 10",
        "COUNT(DISTINCT k) > 1",
    ]);
    format!(" HAVING {condition}")
}
