//! A connection URL, with its password apart: what is given to programs as an argument never holds one.

use super::shared::invalid;
use crate::error::Result;

/// A URL of another server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SourceUrl {
    /// As it was given, less the password.
    pub(super) without_password: String,
    pub(super) password: Option<String>,
}

impl std::fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceUrl").field("without_password", &self.without_password).finish_non_exhaustive()
    }
}

impl SourceUrl {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = ["postgresql://", "postgres://"]
            .into_iter()
            .find_map(|scheme| url.strip_prefix(scheme).map(|rest| (scheme, rest)))
            .ok_or_else(|| invalid("the source is not a URL").hint("give postgresql://user:password@host:port/database"))?;
        if url.contains(char::is_control) {
            return Err(invalid("the source's URL contains a control character"));
        }
        let (before, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
        let (authority, path) = before.find('/').map_or((before, ""), |at| before.split_at(at));
        let mut password = None;
        let authority = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = match user.split_once(':') {
                    Some((user, given)) => {
                        password = Some(decode(given)?);
                        user
                    }
                    None => user,
                };
                format!("{user}@{host}")
            }
            None => authority.to_owned(),
        };
        let mut kept = Vec::new();
        for parameter in query.into_iter().flat_map(|query| query.split('&')).filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("password", given)) => password = Some(decode(given)?),
                Some(("sslpassword", _)) => {
                    return Err(invalid("the source's URL holds an sslpassword").hint("use a key without one, or a password file"));
                }
                _ => kept.push(parameter),
            }
        }
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        Ok(Self {
            without_password: format!("{scheme}{authority}{path}{query}"),
            password: password.filter(|password| !password.is_empty()),
        })
    }

    /// For messages.
    pub(super) fn shown(&self) -> &str {
        &self.without_password
    }
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(invalid("the password in the source's URL has a '%' that starts no escape").hint("write '%' as %25"));
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(|| invalid("the password in the source's URL is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_taken_out_wherever_it_stands() {
        for (given, without, password) in [
            ("postgresql://u:p%40s@h:1/db?sslmode=require", "postgresql://u@h:1/db?sslmode=require", Some("p@s")),
            ("postgres://u@/db?host=/tmp/x&password=se%25cret&a=b", "postgres://u@/db?host=/tmp/x&a=b", Some("se%cret")),
            ("postgresql://h", "postgresql://h", None),
            ("postgresql://u:@h/db?password=x", "postgresql://u@h/db", Some("x")),
            ("postgresql:///db?host=/a/b", "postgresql:///db?host=/a/b", None),
            ("postgresql://u:a@b@h/db", "postgresql://u@h/db", Some("a@b")),
        ] {
            let url = SourceUrl::parse(given).unwrap();
            assert_eq!((url.without_password.as_str(), url.password.as_deref()), (without, password), "{given}");
            assert!(!format!("{url:?}").contains(password.unwrap_or("postgresql-never")));
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for bad in ["host=x password=secret", "mysql://secret@h", "postgresql://u:se%zzcret@h", "postgresql://u:secret@h?sslpassword=x", ""]
        {
            let error = SourceUrl::parse(bad).unwrap_err();
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
