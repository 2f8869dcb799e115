//! What `DESCRIBE` shows: a line a column, in the columns that Flink's has.

use tidemill_sql::Described;

const HEAD: [&str; 6] = ["name", "type", "null", "key", "extras", "watermark"];

/// The columns of a table as text. What no column has (a key, …) is left out.
pub(crate) fn text(columns: &[Described]) -> String {
    let flag = |is: bool, yes: &str, no: &str| if is { yes.to_string() } else { no.to_string() };
    let mut rows: Vec<[String; 6]> = vec![HEAD.map(String::from)];
    rows.extend(columns.iter().map(|c| {
        let (null, key) = (flag(c.nullable, "TRUE", "FALSE"), flag(c.key, "PRI", ""));
        [c.name.clone(), c.data_type.clone(), null, key, c.extra.clone(), c.watermark.clone()]
    }));
    let shown: Vec<usize> = (0..HEAD.len()).filter(|i| *i < 3 || rows[1..].iter().any(|r| !r[*i].is_empty())).collect();
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = shown.iter().map(|i| width(*i)).collect();
    let line = |cells: Vec<String>| cells.join("  ").trim_end().to_string();
    let padded = |row: &[String; 6]| line(shown.iter().zip(&widths).map(|(i, &width)| format!("{:<width$}", row[*i])).collect());
    let mut lines: Vec<String> = rows.iter().map(padded).collect();
    lines.insert(1, line(widths.iter().map(|w| "-".repeat(*w)).collect()));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, data_type: &str) -> Described {
        Described {
            name: name.into(),
            data_type: data_type.into(),
            nullable: true,
            key: false,
            extra: String::new(),
            watermark: String::new(),
        }
    }

    #[test]
    fn columns_stand_below_each_other() {
        let plain = [column("a", "BIGINT"), column("straße", "STRING")];
        assert_eq!(text(&plain), "name    type    null\n------  ------  ----\na       BIGINT  TRUE\nstraße  STRING  TRUE");
        let key = Described { nullable: false, key: true, ..column("id", "INT") };
        let time = Described { extra: "AS TO_TIMESTAMP(t)".into(), watermark: "ts".into(), ..column("ts", "TIMESTAMP(3)") };
        assert_eq!(
            text(&[key, time]),
            "name  type          null   key  extras              watermark\n\
             ----  ------------  -----  ---  ------------------  ---------\n\
             id    INT           FALSE  PRI\n\
             ts    TIMESTAMP(3)  TRUE        AS TO_TIMESTAMP(t)  ts"
        );
        assert_eq!(text(&[]), "name  type  null\n----  ----  ----");
    }
}
