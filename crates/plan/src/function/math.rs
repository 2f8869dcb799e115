//! Numbers. Functions of one DOUBLE give a DOUBLE; rounding keeps the type of its argument.
//!
//! Random numbers live in `random`; ABS and what else is the same everywhere is DataFusion's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::compute::kernels::numeric::rem;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use tidemill_block::value::{parse_decimal, write_decimal, write_f64};

use super::define::{Call, Def, Param::*, Returns, build, build_text, def, type_name};

macro_rules! unary {
    ($name:literal, $help:literal, $f:expr) => {
        def($name, concat!($name, "(x)"), $help, &[Double], Returns::Double, |c| unary(c, $f))
    };
}

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    unary!("sqrt", "The square root", f64::sqrt),
    unary!("exp", "e to the power of x", f64::exp),
    unary!("ln", "The natural logarithm", f64::ln),
    unary!("log10", "The logarithm to base 10", f64::log10),
    unary!("log2", "The logarithm to base 2", f64::log2),
    unary!("sin", "The sine", f64::sin),
    unary!("cos", "The cosine", f64::cos),
    unary!("tan", "The tangent", f64::tan),
    unary!("cot", "The cotangent", |x| 1.0 / x.tan()),
    unary!("asin", "The arc sine", f64::asin),
    unary!("acos", "The arc cosine", f64::acos),
    unary!("atan", "The arc tangent", f64::atan),
    unary!("sinh", "The hyperbolic sine", f64::sinh),
    unary!("cosh", "The hyperbolic cosine", f64::cosh),
    unary!("tanh", "The hyperbolic tangent", f64::tanh),
    unary!("degrees", "Radians as degrees", f64::to_degrees),
    unary!("radians", "Degrees as radians", f64::to_radians),
    def("power", "POWER(x, y)", "x to the power of y", &[Double, Double], Returns::Double, |c| binary(c, f64::powf)).alias(&["pow"]),
    def("atan2", "ATAN2(y, x)", "The angle of the point (x, y)", &[Double, Double], Returns::Double, |c| binary(c, f64::atan2)),
    def("log", "LOG([base, ]x)", "The logarithm, natural without a base", &[Double, Double], Returns::Double, log).optional(1),
    def("e", "E()", "Euler's number", &[], Returns::Double, |c| constant(c, std::f64::consts::E)),
    def("pi", "PI()", "The number π", &[], Returns::Double, |c| constant(c, std::f64::consts::PI)),
    def("mod", "MOD(a, b)", "The remainder of a / b, with the sign of a", &[Number, Number], Returns::With(mod_type), modulo),
    def("sign", "SIGN(x)", "-1, 0 or 1", &[Number], Returns::Same(0), sign).alias(&["signum"]),
    def("ceil", "CEIL(x)", "The least whole number that is not less", &[Number], Returns::With(whole_type), |c| whole(c, f64::ceil, true))
        .alias(&["ceiling"]),
    def("floor", "FLOOR(x)", "The greatest whole number that is not greater", &[Number], Returns::With(whole_type), |c| {
        whole(c, f64::floor, false)
    }),
    def(
        "round",
        "ROUND(x[, n])",
        "To n (default 0) digits behind the point, half away from zero",
        &[Number, Int],
        Returns::With(round_type),
        |c| round(c, true),
    )
    .optional(1),
    def("truncate", "TRUNCATE(x[, n])", "Cut to n (default 0) digits behind the point", &[Number, Int], Returns::With(round_type), |c| {
        round(c, false)
    })
    .optional(1)
    .alias(&["trunc"]),
    def("bin", "BIN(n)", "Binary", &[Int], Returns::Text, bin),
];

fn unary(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    // A column of values; a constant is one value, as many as there are rows to compute.
    Ok(Arc::new(call.double(0)?.array.unary::<_, Float64Type>(f)))
}

fn binary(call: &Call, f: fn(f64, f64) -> f64) -> Result<ArrayRef> {
    let (a, b) = (call.double(0)?, call.double(1)?);
    build::<Float64Type>(call.rows, |r| Some(f(a.get(r)?, b.get(r)?)))
}

fn log(call: &Call) -> Result<ArrayRef> {
    if call.len() == 1 {
        return unary(call, f64::ln);
    }
    binary(call, |base, x| x.ln() / base.ln())
}

fn constant(call: &Call, value: f64) -> Result<ArrayRef> {
    Ok(Arc::new(Float64Array::from_value(value, call.rows)))
}

/// An integer as a DECIMAL that holds it.
fn decimal_of(t: &DataType) -> DataType {
    if t.is_integer() { DataType::Decimal128(19, 0) } else { t.clone() }
}

fn mod_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match (&types[0], &types[1]) {
        (x, y) if x == y || x.is_integer() && y.is_integer() => y.clone(),
        (x, y) if x.is_floating() || y.is_floating() => DataType::Float64,
        (x, y) => match (decimal_of(x), decimal_of(y)) {
            (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) => {
                let scale = s1.max(s2);
                let whole = (p1 as i16 - s1 as i16).min(p2 as i16 - s2 as i16);
                DataType::Decimal128((whole + scale as i16).clamp(1, 38) as u8, scale)
            }
            (_, other) => other,
        },
    })
}

fn modulo(call: &Call) -> Result<ArrayRef> {
    let (a, b) = (call.column(0)?, call.column(1)?);
    let rest = match (a.data_type(), b.data_type()) {
        (x, y) if x == y => rem(&a, &b)?,
        (x, y) if x.is_integer() && y.is_integer() => rem(&cast(&a, &DataType::Int64)?, &cast(&b, &DataType::Int64)?)?,
        (x, y) if x.is_floating() || y.is_floating() => rem(&cast(&a, &DataType::Float64)?, &cast(&b, &DataType::Float64)?)?,
        (x, y) => rem(&cast(&a, &decimal_of(x))?, &cast(&b, &decimal_of(y))?)?,
    };
    // The remainder is smaller than the divisor, so its type holds it.
    Ok(if rest.data_type() == call.returns { rest } else { cast(&rest, call.returns)? })
}

fn sign(call: &Call) -> Result<ArrayRef> {
    let arg = call.arg(0)?;
    Ok(match call.returns {
        DataType::Float64 => Arc::new(
            arg.array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| if v == 0.0 || v.is_nan() { v } else { v.signum() }),
        ),
        DataType::Float32 => Arc::new(
            arg.array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| if v == 0.0 || v.is_nan() { v } else { v.signum() }),
        ),
        DataType::Decimal128(p, s) => {
            let one = 10i128.pow((*s).max(0) as u32);
            Arc::new(
                arg.array
                    .as_primitive::<Decimal128Type>()
                    .unary::<_, Decimal128Type>(|v| v.signum() * one)
                    .with_precision_and_scale(*p, *s)?,
            )
        }
        t if t.is_integer() => {
            let wide = call.int(0)?.array.unary::<_, arrow::datatypes::Int64Type>(i64::signum);
            cast(&wide, t)?
        }
        other => return exec_err!("SIGN takes a number, not {}", type_name(other)),
    })
}

fn whole_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match &types[0] {
        DataType::Decimal128(p, s) => DataType::Decimal128(*p, (*s).min(0)),
        other => other.clone(),
    })
}

fn whole(call: &Call, f: fn(f64) -> f64, up: bool) -> Result<ArrayRef> {
    let arg = call.arg(0)?;
    Ok(match arg.array.data_type() {
        DataType::Float64 => Arc::new(arg.array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f)),
        DataType::Float32 => Arc::new(arg.array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| f(v as f64) as f32)),
        DataType::Decimal128(p, s) if *s > 0 => {
            let one = 10i128.pow(*s as u32);
            let values: Decimal128Array = arg.array.as_primitive::<Decimal128Type>().unary(|v: i128| {
                let floor = v.div_euclid(one);
                floor + (up && v.rem_euclid(one) != 0) as i128
            });
            Arc::new(values.with_precision_and_scale(*p, 0)?)
        }
        _ => arg.array,
    })
}

/// What rounding a DECIMAL(p, s) to n digits gives in Flink.
fn round_type(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let digits = match constants.get(1) {
        None => Some(0),
        Some(Some(ScalarValue::Int64(n))) => *n,
        Some(Some(ScalarValue::Int32(n))) => n.map(i64::from),
        _ => None,
    };
    Ok(match (&types[0], digits) {
        (DataType::Decimal128(p, s), Some(n)) if n < *s as i64 => {
            let (p, s) = (*p as i64, *s as i64);
            if n < 0 {
                DataType::Decimal128((1 + p - s).clamp(1, 38) as u8, 0)
            } else {
                DataType::Decimal128((1 + p - s + n).clamp(1, 38) as u8, n as i8)
            }
        }
        (t, _) => t.clone(),
    })
}

fn round(call: &Call, half_up: bool) -> Result<ArrayRef> {
    let arg = call.arg(0)?;
    let digits = if call.len() == 2 { Some(call.int(1)?) } else { None };
    let digits_at = |r: usize| digits.as_ref().map_or(Some(0), |d| d.get(r)).map(|d| d.clamp(-400, 400) as i32);
    match (arg.array.data_type(), call.returns) {
        (DataType::Float64, _) => {
            let values = arg.array.as_primitive::<Float64Type>();
            build::<Float64Type>(call.rows, |r| {
                let i = arg.index(r);
                if values.is_valid(i) { Some(round_f64(values.value(i), digits_at(r)?, half_up)) } else { None }
            })
        }
        (DataType::Float32, _) => {
            let values = arg.array.as_primitive::<Float32Type>();
            let rounded: Float32Array = (0..call.rows)
                .map(|r| {
                    let i = arg.index(r);
                    // By way of the decimal digits: the float 1.15 is 1.15 here, not what lies near it.
                    let wide = if values.is_valid(i) { values.value(i).to_string().parse::<f64>().ok()? } else { return None };
                    Some(round_f64(wide, digits_at(r)?, half_up) as f32)
                })
                .collect();
            Ok(Arc::new(rounded))
        }
        (DataType::Decimal128(_, from), DataType::Decimal128(p, to)) => {
            let values = arg.array.as_primitive::<Decimal128Type>();
            let limit = 10i128.checked_pow(*p as u32).unwrap_or(i128::MAX);
            let rounded: Decimal128Array = (0..call.rows)
                .map(|r| {
                    let i = arg.index(r);
                    if !values.is_valid(i) {
                        return None;
                    }
                    let v = round_i128(values.value(i), *from as i32 - digits_at(r)?, half_up);
                    rescale(v, *from, *to).filter(|v| v.abs() < limit)
                })
                .collect();
            Ok(Arc::new(rounded.with_precision_and_scale(*p, *to)?))
        }
        (t, returns) if t.is_integer() => {
            let values = call.int(0)?;
            let rounded = build::<arrow::datatypes::Int64Type>(call.rows, |r| {
                Some(round_i128(values.get(r)? as i128, -digits_at(r)?, half_up) as i64)
            })?;
            Ok(cast(&rounded, returns)?)
        }
        (other, _) => plan_err!("{} takes a number, not {}", call.name(), type_name(other)),
    }
}

fn rescale(v: i128, from: i8, to: i8) -> Option<i128> {
    let factor = 10i128.checked_pow((from as i32 - to as i32).unsigned_abs())?;
    if to >= from { v.checked_mul(factor) } else { Some(v / factor) }
}

/// `v` with its last `drop` digits made zero; none if `drop` is not positive.
fn round_i128(v: i128, drop: i32, half_up: bool) -> i128 {
    if drop <= 0 {
        return v;
    }
    let Some(one) = 10i128.checked_pow(drop as u32) else { return 0 };
    let rest = v % one;
    let cut = v - rest;
    if half_up && rest.abs() >= one - rest.abs() { cut + one * v.signum() } else { cut }
}

/// Rounds or cuts the shortest decimal form of `x` (`1.005` is exactly that), as Java's BigDecimal does.
fn round_f64(x: f64, digits: i32, half_up: bool) -> f64 {
    if !x.is_finite() || x == 0.0 || digits > 340 {
        return x;
    }
    if (0..=15).contains(&digits) {
        let one = 10f64.powi(digits);
        let scaled = x.abs() * one;
        let floor = scaled.floor();
        let part = scaled - floor;
        // Where binary and decimal fractions can't disagree: away from a half and from whole numbers.
        // Both `floor` and `one` are exact, so their quotient is the nearest double.
        if scaled < 1e9 && (part - 0.5).abs() < 0.499_999 && (part - 0.5).abs() > 1e-6 {
            let up = half_up && part > 0.5;
            return ((floor + up as i32 as f64) / one).copysign(x);
        }
    }
    let mut text = Vec::with_capacity(32);
    write_f64(&mut text, x);
    // Seventeen digits, shifted by the exponent, may lie beyond 38: such numbers have no digits to drop, or none to keep.
    let exponent = x.abs().log10().floor() as i32;
    if exponent - 17 >= -digits {
        return x;
    }
    if -digits > exponent + 1 {
        return 0f64.copysign(x);
    }
    // All 17 digits behind the first, and one more: nothing is lost by reading at this scale.
    let scale = 18 - exponent;
    let (Ok(scale), Some(v)) = (i8::try_from(scale), i8::try_from(scale).ok().and_then(|s| parse_decimal(&text, 38, s))) else { return x };
    let v = round_i128(v, scale as i32 - digits, half_up);
    let mut plain = Vec::with_capacity(48);
    write_decimal(&mut plain, v, scale);
    std::str::from_utf8(&plain).ok().and_then(|t| t.parse().ok()).unwrap_or(x)
}

fn bin(call: &Call) -> Result<ArrayRef> {
    let numbers = call.int(0)?;
    build_text(call.rows, |r, out| {
        out.extend_from_slice(format!("{:b}", numbers.get(r)?).as_bytes());
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_one, failure};
    use super::round_f64;

    #[test]
    fn rounding_goes_by_decimal_digits() {
        #[track_caller]
        fn check(x: f64, digits: i32, round: f64, cut: f64) {
            assert_eq!((round_f64(x, digits, true), round_f64(x, digits, false)), (round, cut));
        }
        check(2.5, 0, 3.0, 2.0);
        check(-2.5, 0, -3.0, -2.0);
        check(1.005, 2, 1.01, 1.0);
        check(0.285, 2, 0.29, 0.28);
        check(1234.5678, -2, 1200.0, 1200.0);
        check(1250.0, -2, 1300.0, 1200.0);
        check(0.3, 1, 0.3, 0.3);
        check(1e300, 2, 1e300, 1e300);
        check(1.5e-9, 9, 2e-9, 1e-9);
        check(4.35, 2, 4.35, 4.35);
        check(99.0, -3, 0.0, 0.0);
        check(600.0, -3, 1000.0, 0.0);
        check(f64::INFINITY, 1, f64::INFINITY, f64::INFINITY);
    }

    #[test]
    fn types_are_kept() {
        check("round", &["1.005"], "1");
        check("round", &["155", "-1"], "160");
        check("truncate", &["-1.999e0", "2"], "-1.99");
        check("ceil", &["1.2"], "2");
        check("ceil", &["-1.2e0"], "-1.0");
        check("floor", &["-1.2"], "-2");
        check("floor", &["7"], "7");
        check("mod", &["-7", "3"], "-1");
        check("mod", &["7.5", "2"], "1.5");
        check("mod", &["NULL", "2"], "NULL");
        check("sign", &["-2.50"], "-1.00");
        check("sign", &["5"], "1");
        assert!(failure("mod", &["1", "0"]).to_lowercase().contains("zero"));
    }

    #[test]
    fn decimals_get_the_scale_they_are_rounded_to_if_it_is_known() {
        for (name, column, expect) in [
            ("round", None, "2.35"),
            ("round", Some(0), "2.35"),
            ("round", Some(1), "2.350"),
            ("truncate", None, "2.34"),
            ("truncate", Some(0), "2.34"),
            ("truncate", Some(1), "2.340"),
        ] {
            check_one("UTC", name, &["2.345", "2"], column, expect).unwrap();
        }
    }

    #[test]
    fn doubles() {
        check("power", &["2", "10"], "1024.0");
        check("log", &["8"], &8f64.ln().to_string());
        check("log", &["2", "8"], "3.0");
        check("sqrt", &["2.25"], "1.5");
        check("ln", &["0"], "-Infinity");
        check("pi", &[], "3.141592653589793");
        check("bin", &["12"], "1100");
    }
}
