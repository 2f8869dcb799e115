//! Files made by SAS and other programs, with the values that they hold as others found them. They lie beside the
//! repository, in `../shared/data/sas`, and are not part of it; where they are missing, nothing is tested.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Date32Type, Float64Type};
use arrow::util::display::array_value_to_string;
use tidemill_sas::{Charset, Kind, LocalPages, Pages, SasFile, Wanted, XportFile};

#[path = "../../../tests/not_run.rs"]
mod not_run;
use not_run::not_run;

fn directory() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/sas");
    if !path.is_dir() {
        not_run(&format!("the tests on files of SAS ({} is missing)", path.display()));
        return None;
    }
    Some(path)
}

fn pages(path: &Path) -> Arc<dyn Pages> {
    Arc::new(LocalPages::new(File::open(path).expect("a file")).expect("its length"))
}

/// Lines of fields, without their quotes.
fn csv(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("expected values");
    let mut lines = Vec::new();
    for line in text.trim_start_matches('\u{FEFF}').lines().filter(|line| !line.trim().is_empty()) {
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut letters = line.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                // Two quotes within quotes are one.
                '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                c => field.push(c),
            }
        }
        fields.push(field);
        lines.push(fields);
    }
    lines
}

/// A number to 15 significant digits: so the programs round that wrote the expectations, before they leave out zeros at the end.
fn rounded(value: f64) -> f64 {
    format!("{value:.14e}").parse().expect("a number")
}

/// Whether a value is what the expectation says, exactly or to 15 digits; `tolerance` is relative.
fn same(column: &dyn Array, row: usize, expect: &str, tolerance: f64) -> bool {
    let expect = expect.trim_end();
    if column.is_null(row) {
        return matches!(expect, "" | "NA");
    }
    match column.data_type() {
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            let is = |found: f64, number: f64| (found - number).abs() <= tolerance * number.abs();
            expect.parse::<f64>().is_ok_and(|number| is(value, number) || is(rounded(value), number))
        }
        // Days since 1960, or a date.
        DataType::Date32 => match expect.parse::<i32>() {
            Ok(days) => column.as_primitive::<Date32Type>().value(row) + 3_653 == days,
            Err(_) => array_value_to_string(column, row).expect("a date") == expect,
        },
        _ => array_value_to_string(column, row).expect("a value") == expect,
    }
}

#[track_caller]
fn compare(name: &str, found: &RecordBatch, expect: &Path, tolerance: f64) {
    let mut expect = csv(expect);
    let header = expect.remove(0);
    let names: Vec<_> = found.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, header, "{name}: names of columns");
    assert_eq!(found.num_rows(), expect.len(), "{name}: rows");
    for (row, fields) in expect.iter().enumerate() {
        for (index, column) in found.columns().iter().enumerate() {
            let there = || array_value_to_string(column, row);
            assert!(
                same(column, row, &fields[index], tolerance),
                "{name}: row {row}, column '{}' is {:?}, not '{}'",
                names[index],
                there(),
                fields[index]
            );
        }
    }
}

/// All rows of a file; in one piece, and again in ranges of pages and small batches, which must give the same.
fn sas(path: &Path, charset: Option<Charset>) -> (SasFile, RecordBatch) {
    let shown = path.display();
    let file = SasFile::open_as(pages(path), charset).unwrap_or_else(|e| panic!("{shown}: {e}"));
    let wanted = Wanted::all(file.columns().len());
    let read = |parts: usize, rows: usize| {
        let mut batches = Vec::new();
        for part in file.splits(parts) {
            for batch in file.read(part, 0, &wanted, rows).unwrap_or_else(|e| panic!("{shown}: {e}")) {
                batches.push(batch.unwrap_or_else(|e| panic!("{shown}: {e}")));
            }
        }
        concat_batches(&file.schema(), &batches).expect("batches of one schema")
    };
    let whole = read(1, 8192);
    assert_eq!(whole.num_rows() as u64, file.rows(), "{shown}");
    assert_eq!(read(7, 5), whole, "{shown}");
    (file, whole)
}

#[test]
fn sas7bdat_files_have_the_expected_values() {
    let Some(directory) = directory() else { return };
    let mut count = 0;
    for folder in ["pandas", "parso"] {
        for entry in std::fs::read_dir(directory.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|e| e != "sas7bdat") {
                continue;
            }
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            // The header of this one says Latin 1, and its text is UTF-8.
            let charset = (stem == "test16").then(|| Charset::of_label("utf-8").expect("a character set"));
            let (_, found) = sas(&path, charset);
            count += 1;
            // One table in sixteen forms, the last of which has letters of many scripts.
            let expect = match stem.as_str() {
                "date_formats" => continue,
                "test16" => "test_sas7bdat_2".to_string(),
                form if form.starts_with("test") && !form.contains('_') => "test_sas7bdat_1".to_string(),
                other => other.to_string(),
            };
            // The expected values of this one went through single precision.
            let tolerance = if stem == "airline" { 1e-6 } else { 0.0 };
            compare(&stem, &found, &path.with_file_name(format!("{expect}.csv")), tolerance);
        }
    }
    assert!(count >= 35, "only {count} files");
}

#[test]
fn dates_have_the_type_that_their_format_says() {
    let Some(directory) = directory() else { return };
    let (file, found) = sas(&directory.join("parso/date_formats.sas7bdat"), None);
    let expect = csv(&directory.join("parso/date_formats.csv"));
    // All columns hold the same day or the same moment; the expectation has what each format shows of it.
    let mut kinds = [0; 3];
    for (index, column) in file.columns().iter().enumerate() {
        let value = array_value_to_string(found.column(index), 0).expect("a value");
        match column.kind {
            Kind::Date => {
                kinds[0] += 1;
                assert_eq!(value, "2017-03-14", "{}", column.name);
            }
            Kind::DateTime => {
                kinds[1] += 1;
                assert_eq!(value, "2017-03-14T15:36:56.546", "{}", column.name);
            }
            Kind::TimeOfDay => {
                kinds[2] += 1;
                assert_eq!(value, "15:36:56.546", "{}", column.name);
            }
            other => panic!("column '{}' of format {} is a {other:?}", column.name, column.format),
        }
        // Formats that show all of it as SQL does.
        if matches!(column.name.as_str(), "e8601da" | "yymmdd" | "yymmddd" | "e8601dt" | "tod") {
            assert_eq!(value, expect[1][index], "{}", column.name);
        }
    }
    assert_eq!(kinds, [49, 17, 1], "dates, datetimes, times of day");
}

#[test]
fn xport_files_have_the_expected_values() {
    let Some(directory) = directory() else { return };
    for stem in ["DEMO_G", "DRXFCD_G", "SSHSV1_A", "paxraw_d_short"] {
        let path = directory.join("pandas").join(format!("{stem}.xpt"));
        let file = XportFile::open(pages(&path), None, None).unwrap_or_else(|e| panic!("{stem}: {e}"));
        let wanted = Wanted::all(file.columns().len());
        for rows in [13, 8192] {
            let batches: Result<Vec<_>, _> = file.read(0, &wanted, rows).expect("a reader").collect();
            let batches = batches.unwrap_or_else(|e| panic!("{stem}: {e}"));
            compare(stem, &concat_batches(&file.schema(), &batches).expect("batches of one schema"), &path.with_extension("csv"), 0.0);
        }
    }
}
