//! URLs of Oracle, as the vendor's thin driver has them.
//!
//! `jdbc:oracle:thin:@//host:1521/service`, `…@host:1521/service`, `…@host:1521:SID`, `…@tcps://host:2484/service`,
//! `…@(DESCRIPTION=…)`, with `?name=value&…` behind each; `user/password` may stand in front of the `@`. What goes into a
//! descriptor is of plain characters, so that nothing in it means something else.

use tidemill_format::options::Secret;

use super::{Scheme, Url, host_and_port, strip};

impl Url {
    /// What stands behind `oracle:`.
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub(super) fn oracle(rest: &str) -> Result<Self, String> {
        let rest = strip(rest, "thin:").unwrap_or(rest);
        let mut url = Url::empty(Scheme::Oracle);
        // A password may have an @ in it; what stands behind has none.
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        if !login.is_empty() {
            let (user, password) = login.split_once('/').map_or((login, None), |(user, password)| (user, Some(password)));
            // One with an @ is all of a URL up to a password with another one.
            if user.contains([':', '@']) || login.starts_with("//") {
                return Err("expected jdbc:oracle:thin:@//host:port/service; a login in front of the @ is user/password".into());
            }
            url.user = Some(user.to_string()).filter(|user| !user.is_empty());
            url.password = password.map(Secret::new);
        }
        if place.starts_with('(') {
            let end = place.rfind(')').ok_or("the ')' behind a descriptor is missing")? + 1;
            let (descriptor, query) = place.split_at(end);
            if !query.is_empty() && !query.starts_with('?') {
                return Err("expected '?' behind a descriptor, or nothing".into());
            }
            url.database = descriptor.to_string();
            url.take_parameters(query.trim_start_matches('?'))?;
            return Ok(url);
        }
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        url.take_parameters(query)?;
        url.oracle_place(place)?;
        Ok(url)
    }

    /// `[tcps:]//host:port/service[:server]`, or `host:port:SID`.
    fn oracle_place(&mut self, place: &str) -> Result<(), String> {
        let place = match place.split_once("://") {
            Some((protocol, place)) => {
                let protocol = protocol.to_ascii_lowercase();
                if protocol != "tcp" && protocol != "tcps" {
                    return Err("the protocol in front of the host is tcp or tcps".into());
                }
                self.parameters.push(("protocol".into(), protocol));
                place
            }
            None => place.strip_prefix("//").unwrap_or(place),
        };
        let address = match place.split_once('/') {
            Some((address, service)) => {
                let (service, server) = service.split_once(':').map_or((service, None), |(service, server)| (service, Some(server)));
                self.database = service.to_string();
                self.parameters.extend(server.map(|server| ("server".to_string(), server.to_string())));
                address
            }
            None => {
                // Colons of an IPv6 address stand in brackets.
                let behind_host = place.rfind(']').map_or(0, |at| at + 1);
                let (address, sid) = place
                    .rsplit_once(':')
                    .filter(|(address, _)| address.get(behind_host..).is_some_and(|port| port.contains(':')))
                    .ok_or("the name of the service is missing; write //host:port/service, or host:port:SID")?;
                self.database = sid.to_string();
                self.parameters.push(("sid".into(), sid.to_string()));
                address
            }
        };
        (self.host, self.port) = host_and_port(address)?;
        let plain = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
        if !plain(&self.host, "-_.:") {
            return Err("the host has a character that no host has".into());
        }
        if self.database.is_empty() || !plain(&self.database, "-_.$#") {
            return Err("the name of a service has letters, digits, and the characters . _ - $ #".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::tests::check;

    #[test]
    fn urls_are_taken_apart() {
        check("jdbc:oracle:thin:@//db:1521/shop", "oracle://db:1521/shop", None, None);
        check("jdbc:oracle:thin:@db:1521/shop.example.com", "oracle://db:1521/shop.example.com", None, None);
        check("JDBC:ORACLE:THIN:@db:1521:ORCL", "oracle://db:1521:ORCL", None, None);
        check("oracle:thin:scott/ti@ger@//db/shop", "oracle://db/shop", Some("scott"), Some("ti@ger"));
        check("oracle://db/shop?user=scott&password=hidden", "oracle://db/shop", Some("scott"), Some("hidden"));
        check("oracle:thin:@[::1]:1521:ORCL", "oracle://[::1]:1521:ORCL", None, None);
        check("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db)))?user=u", "oracle:(DESCRIPTION=…)", Some("u"), None);
    }

    #[test]
    fn protocol_and_server_are_parameters() {
        let url = Url::parse("jdbc:oracle:thin:@tcps://db:2484/shop:dedicated?wallet_location=/w").unwrap();
        let parameters = ["protocol", "server", "wallet-location", "sid"].map(|name| url.parameter(name));
        assert_eq!(parameters, [Some("tcps"), Some("dedicated"), Some("/w"), None]);
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for text in [
            "jdbc:oracle:thin:scott/hidden@//db",
            "jdbc:oracle:oci:scott/hidden@//db/shop",
            "jdbc:oracle:thin:@//db/shop?user=u&password=x@hidden/shop",
            "oracle://db/shop?user=u&password=x@hidden/shop",
            "jdbc:oracle:thin:@ldap://hidden/shop",
            "jdbc:oracle:thin:@db:1521",
            "jdbc:oracle:thin:@db:hidden:ORCL",
            "jdbc:oracle:thin:@//db/hid)(den",
            "jdbc:oracle:thin:@//hid(den/shop",
            "jdbc:oracle:thin:@(DESCRIPTION=hidden",
            "jdbc:oracle:thin:@(DESCRIPTION=)hidden",
            "oracle:hidden",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(!error.contains("hid"), "{text}: {error}");
        }
    }
}
