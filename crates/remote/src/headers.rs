//! Headers of requests as the options of a table give them.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Stands for a `;` that belongs to a value while the text is cut at the others.
const KEPT: char = '\u{0}';

/// The headers that the option `headers` asks for: `Name: value`, divided by `;` or line ends; `;;`
/// stands for a `;` within a value.
///
/// # Errors
/// Says which piece is no header, without its value, which may be a secret.
pub(crate) fn parse(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let text = text.replace(";;", &KEPT.to_string());
    for piece in text.split([';', '\n']).map(str::trim).filter(|p| !p.is_empty()) {
        let Some((name, value)) = piece.split_once(':') else {
            return Err("expected 'Name: value; Name: value' (write ';;' for a ';' within a value)".to_string());
        };
        let name = name.trim();
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("'{name}' is no name of a header"))?;
        let value = value.trim().replace(KEPT, ";");
        let value = HeaderValue::from_str(&value).map_err(|_| format!("the value of '{name}' has characters that cannot be sent"))?;
        headers.append(key, value);
    }
    Ok(headers)
}

/// The headers of the option `headers`, and that of the option `token`.
///
/// # Errors
/// Names the option and what is wrong with it.
pub(crate) fn all(headers: Option<&str>, token: Option<&str>) -> Result<HeaderMap, String> {
    let mut all = headers.map_or_else(|| Ok(HeaderMap::new()), parse).map_err(|why| format!("option 'headers': {why}"))?;
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| "option 'token': it has characters that cannot be sent; expected printable ASCII".to_string())?;
        value.set_sensitive(true);
        all.insert(header::AUTHORIZATION, value);
    }
    Ok(all)
}

/// Whether a request brings this token. Takes as long for a wrong one, wherever it differs.
pub(crate) fn brings(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let Some((scheme, given)) = given.split_at_checked("Bearer ".len()) else { return false };
    let (given, token) = (given.trim_ascii(), token.trim().as_bytes());
    let differs = given.iter().zip(token).fold(0, |differs, (a, b)| differs | (a ^ b));
    scheme.eq_ignore_ascii_case(b"Bearer ") && given.len() == token.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(&str, &str)]) {
        let headers = parse(text).unwrap();
        let found: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn headers_as_options_give_them() {
        check("", &[]);
        check(" X-Key : a b ;; c=d ; Accept:*/*;", &[("x-key", "a b ; c=d"), ("accept", "*/*")]);
        check("A: http://h:1/\nA: 2", &[("a", "http://h:1/"), ("a", "2")]);
        assert!(parse("A b").unwrap_err().contains("expected 'Name: value"));
        assert!(parse("A b: c").unwrap_err().contains("'A b' is no name"));
        let error = parse("Authorization: Bearer geh\u{7}eim").unwrap_err();
        assert!(error.contains("'Authorization'") && !error.contains("eim"), "{error}");
    }

    #[test]
    fn tokens() {
        let sent = all(Some("X: y"), Some(" geheim ")).unwrap();
        assert_eq!((sent.len(), sent[header::AUTHORIZATION].to_str().unwrap()), (2, "Bearer geheim"));
        assert!(brings(&sent, "geheim") && !brings(&sent, "geheil") && !brings(&sent, "geheime") && !brings(&sent, "gehei"));
        let of = |text: &'static str| HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(text))]);
        assert!(brings(&of("bearer  geheim"), "geheim"));
        assert!(!brings(&of("Basic  geheim"), "geheim") && !brings(&of("Bea"), "") && !brings(&HeaderMap::new(), ""));
        assert!(all(Some("x"), None).unwrap_err().starts_with("option 'headers': "));
        assert!(all(None, Some("a\nb")).unwrap_err().starts_with("option 'token': "));
    }
}
