//! What is not shown.

use super::without_secret;

#[test]
fn secrets_are_not_shown() {
    for (key, value, shown) in [
        ("password", "hunter2", "******"),
        ("properties.sasl.jaas.config", "… password=\"x\";", "******"),
        ("http.header.Authorization", "Bearer x", "******"),
        ("url", "jdbc:postgresql://ann:hunter2@db:5432/s?ssl-mode=prefer", "jdbc:postgresql://ann:******@db:5432/s?ssl-mode=prefer"),
        ("url", "mysql://db/s?user=ann&password=hunter2", "mysql://db/s?user=ann&password=******"),
        ("url", "jdbc:sqlserver://h:1433;user=sa;password=X;y@z;encrypt=true", "jdbc:sqlserver://h:1433;user=sa;password=******"),
        ("url", "jdbc:odbc:Driver={Some;Driver};UID=sa;PWD={a;b}}c};Server=h", "jdbc:odbc:Driver={Some;Driver};UID=sa;PWD=******"),
        ("url", "jdbc:odbc:PWD=x", "jdbc:odbc:PWD=******"),
        ("url", "odbc:DSN=events;pwd=x", "odbc:DSN=events;pwd=******"),
        ("url", "jdbc:oracle:thin:scott/ti/g@er@//db:1521/s", "jdbc:oracle:thin:scott/******@//db:1521/s"),
        ("url", "jdbc:oracle:thin:@//db:1521/s", "jdbc:oracle:thin:@//db:1521/s"),
        ("url", "jdbc:sqlserver://h;databaseName=events", "jdbc:sqlserver://h;databaseName=events"),
        ("url", "http://host/a@b:c?x=1", "http://host/a@b:c?x=1"),
        ("path", "/data/a b.csv", "/data/a b.csv"),
    ] {
        assert_eq!(without_secret(key, value), shown);
    }
}
