//! SCRAM (RFC 5802 and RFC 7677), the client's side without channel binding: both sides show that they know the password,
//! and neither sends it.

use std::num::NonZeroU32;

use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use tidemill_format::json::base64;

/// How often a broker may have the password hashed: a second of a processor or so. Kafka's default is 4,096.
const ROUNDS_MAX: u32 = 1_000_000;
/// Random bytes in the client's nonce.
const NONCE_BYTES: usize = 24;

/// The hash function behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn derivation(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn sign(self, key: &[u8], data: &[u8]) -> hmac::Tag {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data)
    }
}

/// A nonce that nobody guesses.
///
/// # Errors
/// The system gives no random bytes.
pub fn nonce() -> Result<String, String> {
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the system gives no random bytes".to_string())?;
    Ok(base64::text(&bytes))
}

/// One login.
pub struct Exchange<'a> {
    hash: Hash,
    password: &'a str,
    nonce: String,
    /// The first message without its header, which all signatures cover.
    bare: String,
}

impl<'a> Exchange<'a> {
    /// For a user with a password. No login may have the nonce of another.
    pub fn new(hash: Hash, user: &str, password: &'a str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Exchange { hash, password, bare: format!("n={user},r={nonce}"), nonce }
    }

    /// The first message.
    pub fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// The answer to the broker's challenge, and what the broker must say to that.
    ///
    /// # Errors
    /// A challenge that is none, is not for this login, or asks for too much.
    pub fn answer(&self, challenge: &[u8]) -> Result<(String, String), String> {
        let text = std::str::from_utf8(challenge).map_err(|_| "the broker's challenge is no text".to_string())?;
        // With an extension that must be known it would begin with another letter.
        let mut fields = text.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let (Some(nonce), Some(salt), Some(rounds)) = (field("r="), field("s="), field("i=")) else {
            return Err("the broker's challenge is none of SCRAM".to_string());
        };
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err("the broker's challenge is not for this login".to_string());
        }
        let mut salt_bytes = Vec::new();
        base64::read(salt.as_bytes(), &mut salt_bytes).ok_or_else(|| "the salt of the broker's challenge is not base64".to_string())?;
        let rounds = rounds.parse::<NonZeroU32>().ok().filter(|n| n.get() <= ROUNDS_MAX);
        let rounds = rounds.ok_or_else(|| format!("the broker's challenge asks for other than 1 to {ROUNDS_MAX} rounds"))?;

        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.derivation(), rounds, &salt_bytes, self.password.as_bytes(), &mut salted);
        let client = self.hash.sign(&salted, b"Client Key");
        let stored = digest::digest(self.hash.digest(), client.as_ref());
        // `biws` is the header of the first message, `n,,`.
        let last = format!("c=biws,r={nonce}");
        let signed = format!("{},{text},{last}", self.bare);
        let signature = self.hash.sign(stored.as_ref(), signed.as_bytes());
        let (key, sign): (&[u8], &[u8]) = (client.as_ref(), signature.as_ref());
        let proof: Vec<u8> = key.iter().zip(sign).map(|(key, sign)| key ^ sign).collect();
        let server = self.hash.sign(&salted, b"Server Key");
        let expected = self.hash.sign(server.as_ref(), signed.as_bytes());
        Ok((format!("{last},p={}", base64::text(&proof)), format!("v={}", base64::text(expected.as_ref()))))
    }
}

/// Checks the broker's last message: it must know the password, too.
///
/// # Errors
/// It does not, or it refuses the login.
pub fn check(last: &[u8], expected: &str) -> Result<(), String> {
    let text = String::from_utf8_lossy(last);
    let first = text.split(',').next().unwrap_or_default();
    match first.strip_prefix("e=") {
        Some(why) => Err(format!("the broker refuses it: {why}")),
        None if first == expected => Ok(()),
        None => Err("the broker does not know the password; is it the one that was meant?".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conversation in RFC 7677, section 3.
    #[test]
    fn the_conversation_of_the_standard() {
        let exchange = Exchange::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO".into());
        assert_eq!(exchange.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (proof, expected) = exchange.answer(challenge).unwrap();
        let nonce = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(proof, format!("{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="));
        assert_eq!(expected, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", &expected), Ok(()));
        assert!(check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", &expected).unwrap_err().contains("does not know"));
        assert!(check(b"e=unknown-user", &expected).unwrap_err().contains("unknown-user"));
    }

    /// Worked out with Python's hashlib.
    #[test]
    fn the_longer_hash() {
        let exchange = Exchange::new(Hash::Sha512, "writer", "secret", "abc".into());
        let (proof, expected) = exchange.answer(b"r=abcdef,s=c2FsdA==,i=4096").unwrap();
        let proof_of = "udV8TB2UGt+SGL5/IUNiuu7IT/m8yhekoZNPd3CPW0Kc5+ylir32u8+2hCqefXsIxTA0JaEO2taAtxUR35QLgw==";
        assert_eq!(proof, format!("c=biws,r=abcdef,p={proof_of}"));
        assert_eq!(expected, "v=rtYvhpsuUcixwL8lO4sJ1mNgXdkr16NT/xuXtlmWlAUsuZ4Dyy/iyerQebRCh+VhmKovj/XyXd0rhJ8oo9AdYA==");
    }

    #[test]
    fn challenges_that_are_refused() {
        let check = |challenge: &[u8], expect: &str| {
            let error = Exchange::new(Hash::Sha256, "a=b,c", "p", "abc".into()).answer(challenge).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        assert_eq!(Exchange::new(Hash::Sha256, "a=b,c", "p", "abc".into()).first(), "n,,n=a=3Db=2Cc,r=abc");
        check(b"\xff", "no text");
        check(b"m=ext,r=abcdef,s=c2FsdA==,i=4096", "none of SCRAM");
        check(b"r=abcdef,s=c2FsdA==", "none of SCRAM");
        check(b"r=abc,s=c2FsdA==,i=4096", "not for this login");
        check(b"r=xyzabc,s=c2FsdA==,i=4096", "not for this login");
        check(b"r=abcdef,s=!,i=4096", "not base64");
        check(b"r=abcdef,s=c2FsdA==,i=0", "1 to 1000000");
        check(b"r=abcdef,s=c2FsdA==,i=4000000000", "1 to 1000000");
        let (one, two) = (nonce().unwrap(), nonce().unwrap());
        assert!(one != two && one.len() == 32 && !one.contains(','), "{one} {two}");
    }
}
