//! The metrics endpoint of a configuration.

use std::path::Path;

use super::Setup;
use crate::mgmt::config::{ConfigError, KeyPath, MetricsSection};
use crate::mgmt::metrics::{MetricsSetup, Token};

impl Setup {
    /// Returns the metrics endpoint, if there is one.
    ///
    /// # Errors
    /// An address that is malformed, or needs a token; a token that is malformed, or cannot be read.
    pub fn metrics(&self) -> Result<Option<MetricsSetup>, ConfigError> {
        let Some(section) = &self.config.metrics else { return Ok(None) };
        let at = KeyPath::of("metrics");
        let address: std::net::SocketAddr = section.listen.parse().map_err(|_| {
            let help = "write an address and a port, as in 127.0.0.1:9464 or [::1]:9464";
            self.source.error(&at.key("listen"), format!("`{}` is no address", section.listen), help)
        })?;
        let token = self.token(section, &at)?;
        if token.is_none() && !address.ip().is_loopback() {
            let message =
                format!("`{}` can be reached from other machines, and there is no token", section.listen);
            let help = "add token_file = \"FILE\" or token = \"…\", or listen on 127.0.0.1";
            return Err(self.source.error(&at.key("listen"), message, help));
        }
        Ok(Some(MetricsSetup { address, token }))
    }

    /// Reads the token.
    fn token(&self, section: &MetricsSection, at: &KeyPath) -> Result<Option<Token>, ConfigError> {
        let (text, key, place) = match (&section.token, &section.token_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let help = "leave one of them out";
                return Err(self.source.error(&at.key("token"), "there are both token and token_file", help));
            }
            (Some(token), None) => (token.clone(), "token", String::new()),
            (None, Some(file)) => {
                let file = self.source.folder().join(file);
                let place = format!("{}: ", file.display());
                (self.token_of(&file, at)?, "token_file", place)
            }
        };
        let refused = |problem: String| {
            let help = "`openssl rand -hex 32` makes one";
            self.source.error(&at.key(key), format!("{place}{problem}"), help)
        };
        Token::new(&text).map(Some).map_err(refused)
    }

    fn token_of(&self, file: &Path, at: &KeyPath) -> Result<String, ConfigError> {
        let text = flowlane_capture::read_text(file).map_err(|error| {
            let help = error.help.as_deref().unwrap_or_default();
            let message = format!("{}: {}", file.display(), error.problem);
            self.source.error(&at.key("token_file"), message, help)
        })?;
        // Editors end lines.
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup_of(lines: &str) -> Result<Option<MetricsSetup>, ConfigError> {
        Setup::parse(&format!("[metrics]\n{lines}\n[[table]]\nnumber = 0\n")).unwrap().metrics()
    }

    #[test]
    fn this_machine_may_ask_without_a_token_and_others_need_one() {
        assert_eq!(Setup::parse("[[table]]\nnumber = 0\n").unwrap().metrics().unwrap(), None);
        let default = setup_of("").unwrap().unwrap();
        assert_eq!((default.address, default.token), (([127, 0, 0, 1], 9464).into(), None));
        assert!(setup_of("listen = \"[::1]:80\"").unwrap().is_some());
        let open = setup_of("listen = \"0.0.0.0:9464\"").unwrap_err();
        assert!(open.message.contains("there is no token"), "{open}");
        assert_eq!(open.span.map(|span| &open.text[span]), Some("\"0.0.0.0:9464\""));
        assert!(
            setup_of("listen = \"0.0.0.0:9464\"\ntoken = \"0123456789abcdef\"")
                .unwrap()
                .unwrap()
                .token
                .is_some()
        );
        for (lines, part) in [
            ("listen = \"localhost:1\"", "`localhost:1` is no address"),
            ("listen = \"127.0.0.1\"", "is no address"),
            ("token = \"short\"", "16 to 1024 characters, not 5"),
            ("token = \"0123456789abcdef\"\ntoken_file = \"a\"", "both token and token_file"),
            ("token_file = \"/nonexistent/token\"", "/nonexistent/token: "),
        ] {
            let error = setup_of(lines).unwrap_err();
            assert!(error.message.contains(part), "{lines}: {error}");
            assert!(error.span.is_some(), "{lines}");
        }
    }

    #[test]
    fn a_token_is_the_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let [config, token] = ["switch.toml", "token"].map(|name| folder.path().join(name));
        std::fs::write(&config, "[metrics]\ntoken_file = \"token\"\n[[table]]\nnumber = 0\n").unwrap();
        std::fs::write(&token, "0123456789abcdef\n").unwrap();
        let read = || Setup::read(&config).unwrap().metrics();
        assert_eq!(read().unwrap().unwrap().token, Some(Token::new("0123456789abcdef").unwrap()));
        std::fs::write(&token, "0123456789abcdef\nsecond\n").unwrap();
        let error = read().unwrap_err();
        assert!(error.message.contains("token: a token has letters"), "{error}");
    }
}
