//! The options `store.…` of a table or command, beside what the environment says.

use std::time::Duration;

use tidemill_format::options::{ByteSize, OptionSet, OptionValue, RawOptions, Secret};

use crate::error::{Kind, StoreError};

tidemill_format::options! {
    /// How object stores and web servers are reached. What is not said here comes from the environment:
    /// `GOOGLE_APPLICATION_CREDENTIALS` and what `gcloud auth application-default login` leaves, `AWS_…` and the profiles
    /// in `~/.aws`, `AZURE_…`, or the machine's own identity in a cloud.
    pub struct StoreOptions {
        /// The service's address, for what speaks the protocol of a cloud but is not that cloud: MinIO, Ceph,
        /// an emulator. For example `http://127.0.0.1:9000`.
        ours "store.endpoint" => endpoint: Option<String>;
        /// The region of an `s3:` bucket. By default `AWS_REGION`, the profile's region, or `us-east-1`.
        ours "store.region" => region: Option<String>;
        /// The JSON file with the credentials for `gs:`, of a service account or a user. Nothing else is then
        /// taken from the environment.
        ours "store.credentials-file" => credentials_file: Option<String>;
        /// The storage account of `az:` paths.
        ours "store.account" => account: Option<String>;
        /// The access key id for `s3:`.
        ours "store.access-key" => access_key: Option<String>;
        /// The secret that goes with it; for `az:` the key of the account.
        ours "store.secret-key" => secret_key: Option<Secret>;
        /// The session token of temporary `s3:` credentials.
        ours "store.session-token" => session_token: Option<Secret>;
        /// Asks without credentials: public buckets, emulators.
        ours "store.anonymous" => anonymous: bool = false;
        /// How often a request that failed in passing (a broken connection, status 408, 429, 5xx) is repeated, with
        /// pauses that double from 0.1 to 5 seconds. What came of a body before it broke is kept.
        ours "store.retries" => retries: u32 = 8u32;
        /// How long a request may take, its body included; for `http:` and `https:` how long a server may be silent.
        ours "store.timeout" => timeout: Duration = Duration::from_secs(60);
        /// How many requests may be under way for one file. How many there are is found by measuring.
        ours "store.parallel" => parallel: usize = 16usize;
        /// The bytes that one request of a reader asks for.
        ours "store.read-size" => read_size: ByteSize = ByteSize(4 << 20);
        /// The bytes of one part of an upload; the first 1,000 parts, later ones are larger.
        ours "store.part-size" => part_size: ByteSize = ByteSize(8 << 20);
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions::take(&mut RawOptions::default()).expect("every option has a default or none")
    }
}

impl StoreOptions {
    /// Looks whether the values make sense.
    ///
    /// # Errors
    /// A size or number out of its range.
    pub fn check(&self) -> Result<(), StoreError> {
        let wrong = |what: String| Err(StoreError::new(Kind::Other, what));
        if !(1..=256).contains(&self.parallel) {
            return wrong(format!("'store.parallel' = '{}' must be from 1 to 256", self.parallel));
        }
        if !(64 << 10..=64 << 20).contains(&self.read_size.0) {
            return wrong(format!("'store.read-size' = '{}' must be from 64 kb to 64 mb", show(self.read_size)));
        }
        if !(5 << 20..=64 << 20).contains(&self.part_size.0) {
            let given = show(self.part_size);
            return wrong(format!("'store.part-size' = '{given}' must be from 5 mb (no store takes smaller parts) to 64 mb"));
        }
        if self.timeout.is_zero() {
            return wrong("'store.timeout' must be longer than nothing; write '60 s'".to_string());
        }
        if let Some(endpoint) = &self.endpoint
            && !(endpoint.starts_with("http://") || endpoint.starts_with("https://"))
        {
            return wrong(format!("'store.endpoint' = '{endpoint}' must begin with 'http://' or 'https://'"));
        }
        Ok(())
    }

    /// Tells sets of options apart, secrets included: clients are shared by those that are equal.
    #[cfg(feature = "cloud")]
    pub(crate) fn fingerprint(&self) -> String {
        let secret = |s: &Option<Secret>| s.as_ref().map(|s| s.reveal().to_string());
        format!("{self:?} {:?} {:?}", secret(&self.secret_key), secret(&self.session_token))
    }
}

fn show(size: ByteSize) -> String {
    size.show().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, value: &str, expect: &str) {
        let mut raw = RawOptions::new("table 't'", [(name.to_string(), value.to_string())]);
        let checked = StoreOptions::take(&mut raw).unwrap().check();
        match expect {
            "" => checked.unwrap(),
            expect => assert!(checked.unwrap_err().to_string().contains(expect)),
        }
    }

    #[test]
    fn values_out_of_range() {
        check("store.parallel", "16", "");
        check("store.parallel", "0", "from 1 to 256");
        check("store.part-size", "1 mb", "from 5 mb");
        check("store.read-size", "1 gb", "'1 gb'");
        check("store.endpoint", "localhost:9000", "must begin with");
        check("store.timeout", "0", "longer than nothing");
    }

    #[test]
    #[cfg(feature = "cloud")]
    fn secrets_are_told_apart_and_not_shown() {
        let with = |secret: &str| StoreOptions { secret_key: Some(Secret::new(secret)), ..StoreOptions::default() };
        assert_ne!(with("a1b2").fingerprint(), with("c3").fingerprint());
        assert!(!format!("{:?}", with("a1b2")).contains("a1b2"));
    }
}
