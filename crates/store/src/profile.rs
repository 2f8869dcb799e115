//! The profiles in `~/.aws`, where the command line tools of S3 keep credentials and the client library does not look.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

/// What a profile says. Nothing of it is required.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
    pub session_token: Option<String>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

impl Profile {
    /// The profile that `AWS_PROFILE` names, or `default`, from the files that `AWS_SHARED_CREDENTIALS_FILE` and
    /// `AWS_CONFIG_FILE` name, or those in `~/.aws`. Missing files are empty ones.
    pub fn of_environment() -> Self {
        let name = env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_string());
        let file = |variable: &str, usual: &str| {
            let at_home = || Some(PathBuf::from(env::var_os("HOME")?).join(".aws").join(usual));
            let path = env::var_os(variable).map(PathBuf::from).or_else(at_home);
            path.and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default()
        };
        let (credentials, config) = (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config"));
        Self::of(&name, &credentials, &config)
    }

    fn of(name: &str, credentials: &str, config: &str) -> Self {
        // In the second file the sections of all profiles but the default are called `profile NAME`.
        let long = format!("profile {name}");
        let mut all = section(config, &[name, &long]);
        all.extend(section(credentials, &[name]));
        let mut take = |key: &str| all.remove(key).filter(|v| !v.is_empty());
        Profile {
            access_key: take("aws_access_key_id"),
            secret_key: take("aws_secret_access_key"),
            session_token: take("aws_session_token"),
            region: take("region"),
            endpoint: take("endpoint_url"),
        }
    }
}

/// The settings of the sections of these names. Indented lines belong to the setting above them and are left out.
fn section(text: &str, names: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut inside = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with(['#', ';']) || line.starts_with([' ', '\t']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = names.contains(&name.trim());
        } else if let (true, Some((key, value))) = (inside, trimmed.split_once('=')) {
            found.insert(key.trim().to_string(), value.trim().to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_make_a_profile() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n[other]\naws_access_key_id=C\n";
        let config = "# comment\n[default]\nregion = eu-1\ns3 =\n  endpoint_url = nested\n\
                      [profile other]\nregion=eu-2\nendpoint_url=http://h\n";
        let default = Profile::of("default", credentials, config);
        assert_eq!((default.access_key.as_deref(), default.secret_key.as_deref()), (Some("A"), Some("B")));
        assert_eq!((default.region.as_deref(), default.endpoint), (Some("eu-1"), None));
        let other = Profile::of("other", credentials, config);
        assert_eq!((other.access_key.as_deref(), other.secret_key.as_deref()), (Some("C"), None));
        assert_eq!((other.region.as_deref(), other.endpoint.as_deref()), (Some("eu-2"), Some("http://h")));
        assert_eq!(Profile::of("none", credentials, config), Profile::default());
    }
}
