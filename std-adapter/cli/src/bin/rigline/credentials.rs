//! Secrets for each request to an HTTP server: a token, headers. Neither has to stand on the
//! command line, which other users can see.

use std::path::PathBuf;

use clap::ValueHint;
use rigline_host::target::Target;

use crate::connect::{self, Failure};
use crate::files;

/// The options of the commands that send requests to a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Credentials {
    /// If the target is a URL, send the token in this file with each request, as a bearer token.
    /// (For a TCP target, use its option token-file)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// If the target is a URL, send the token in this environment variable with each request, as a
    /// bearer token
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    pub(crate) token_env: Option<String>,
    /// If the target is a URL, send this header with each request too. ${VARIABLE} in it stands for
    /// an environment variable. @FILE has headers, one per line
    #[arg(long = "header", value_name = "NAME: VALUE|@FILE")]
    pub(crate) headers: Vec<String>,
}

impl Credentials {
    /// The option that is given, if there is one.
    fn given(&self) -> Option<&'static str> {
        [
            (self.token_file.is_some(), "--token-file"),
            (self.token_env.is_some(), "--token-env"),
            (!self.headers.is_empty(), "--header"),
        ]
        .into_iter()
        .find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// Reads them, for this target.
    pub(crate) fn read(&self, target: &Target) -> Result<rigline_host::Credentials, Failure> {
        if let Some(option) = self.given() {
            match target {
                // The tools of a folder, and those of a program, may be services.
                Target::Http(_) | Target::Exec(_) => {}
                Target::Tcp(_) => {
                    return Err(Failure::usage(format!(
                        "{option}: the target is not reached by HTTP; write tcp:HOST:PORT?token-file=FILE"
                    )));
                }
                _ => return Err(Failure::usage(format!("{option}: the target is not reached by HTTP"))),
            }
        }
        self.read_for_any()
    }

    /// Reads them, for targets that are not known yet. They are sent over HTTP only.
    pub(crate) fn read_for_any(&self) -> Result<rigline_host::Credentials, Failure> {
        let mut credentials = rigline_host::Credentials::default();
        for line in self.lines()? {
            let line = filled_in(&line, |name| std::env::var(name).ok().filter(|value| !value.is_empty()));
            let line =
                line.map_err(|name| Failure::usage(format!("--header: the environment has no variable {name}")))?;
            credentials =
                credentials.with_header(&line).map_err(|error| Failure::usage(format!("--header: {error}")))?;
        }
        if let Some(path) = &self.token_file {
            credentials = credentials.with_token(connect::token(path)?.reveal());
        }
        if let Some(name) = &self.token_env {
            let value = std::env::var(name).unwrap_or_default();
            let token = rigline_std::net::Token::new(value.trim());
            let token = token.map_err(|error| Failure::usage(format!("--token-env: the variable {name}: {error}")))?;
            credentials = credentials.with_token(token.reveal());
        }
        Ok(credentials)
    }

    /// The headers as they were written, those in files too.
    pub(crate) fn lines(&self) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        for text in &self.headers {
            let Some(file) = text.strip_prefix('@') else {
                lines.push(text.clone());
                continue;
            };
            let read = files::read(std::path::Path::new(file));
            let read = read.map_err(|error| Failure::usage(format!("--header @{file}: {error}")))?;
            let is_said = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
            lines.extend(read.lines().filter(is_said).map(str::to_owned));
        }
        Ok(lines)
    }
}

/// A text with the values of the variables that `${NAME}` stands for, or the name of one that there
/// is not.
fn filled_in(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        filled += before;
        filled += &value(name).ok_or_else(|| name.to_owned())?;
        rest = after;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::filled_in;

    #[test]
    fn variables_stand_for_their_values() {
        let value = |name: &str| (name == "KEY").then(|| "v${KEY}".to_owned());
        for (text, filled) in [
            ("X: ${KEY}", Ok("X: v${KEY}")),
            ("X: a${KEY}b${KEY}", Ok("X: av${KEY}bv${KEY}")),
            ("X: $KEY {KEY} ${KEY", Ok("X: $KEY {KEY} ${KEY")),
            ("X: ${OTHER}", Err("OTHER")),
            ("X: ${}", Err("")),
        ] {
            assert_eq!(filled_in(text, value), filled.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
