//! One request: what is asked for, or with which status it is refused. Pure.

/// No request line with its headers may be longer.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// What the bytes at hand are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The beginning of a request.
    Partial,
    /// A whole one, with its length.
    Request { bytes: usize, request: Request },
    /// Nothing that is served: the status to answer before the connection is closed.
    Refused(Status),
}

/// A request that can be answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The path, decoded, without the query.
    pub(super) path: String,
    /// It is a HEAD: no body.
    pub(super) head: bool,
    pub(super) keep_alive: bool,
}

/// A response's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Timeout,
    BodyTooLarge,
    HeadTooLarge,
    Unavailable,
    Version,
}

impl Status {
    /// Its code and reason.
    pub(super) fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            Self::Timeout => "408 Request Timeout",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
            Self::Version => "505 HTTP Version Not Supported",
        }
    }
}

/// Looks at what was received.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Status::HeadTooLarge);
        }
        Err(httparse::Error::Version) => return Parsed::Refused(Status::Version),
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    match understand(&head) {
        Ok(request) => Parsed::Request { bytes: length, request },
        Err(status) => Parsed::Refused(status),
    }
}

fn understand(head: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let is_1_1 = head.version == Some(1);
    let (mut hosts, mut keep_alive) = (0, is_1_1);
    for header in head.headers.iter() {
        let value = header.value;
        if header.name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Status::BodyTooLarge);
        } else if header.name.eq_ignore_ascii_case("content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            match value.iter().all(|digit| *digit == b'0') {
                _ if !is_number => return Err(Status::BadRequest),
                true => {}
                false => return Err(Status::BodyTooLarge),
            }
        } else if header.name.eq_ignore_ascii_case("connection") {
            let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            if is_1_1 {
                keep_alive &= !words.any(|word| word.eq_ignore_ascii_case(b"close"));
            } else {
                keep_alive |= words.any(|word| word.eq_ignore_ascii_case(b"keep-alive"));
            }
        }
    }
    if is_1_1 && hosts != 1 {
        return Err(Status::BadRequest);
    }
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Status::MethodNotAllowed),
    };
    let path = decoded(head.path.unwrap_or("")).ok_or(Status::BadRequest)?;
    Ok(Request { path, head: is_head, keep_alive })
}

/// The path of a target, without the query. `None` if it is none, or has a step up: a client has
/// resolved these.
fn decoded(target: &str) -> Option<String> {
    let path = target.split(['?', '#']).next()?.as_bytes();
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let byte = if path[at] == b'%' {
            let digits = std::str::from_utf8(path.get(at + 1..at + 3)?).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            at += 2;
            u8::from_str_radix(digits, 16).ok().filter(|byte| is_hex && *byte != 0)?
        } else {
            path[at]
        };
        decoded.push(byte);
        at += 1;
    }
    let path = String::from_utf8(decoded).ok()?;
    let goes_up = path.split('/').any(|step| step == "..");
    (path.starts_with('/') && !goes_up).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Status {
        match parse(text.as_bytes()) {
            Parsed::Refused(status) => status,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn path(target: &str) -> Option<String> {
        match parse(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()) {
            Parsed::Request { request, .. } => Some(request.path),
            Parsed::Refused(Status::BadRequest) => None,
            other => panic!("{target:?}: {other:?}"),
        }
    }

    #[test]
    fn connections_are_kept_as_the_version_says() {
        for (head, keep_alive) in [
            ("HTTP/1.1\r\nHost: a", true),
            ("HTTP/1.1\r\nHost: a\r\nConnection: x, Close", false),
            ("HTTP/1.0", false),
            ("HTTP/1.0\r\nconnection: Keep-Alive", true),
        ] {
            let text = "HEAD /a HTTP\r\n\r\n".replace("HTTP", head);
            let request = Request { path: "/a".to_owned(), head: true, keep_alive };
            assert_eq!(parse(text.as_bytes()), Parsed::Request { bytes: text.len(), request });
            assert_eq!(parse(&text.as_bytes()[..text.len() - 1]), Parsed::Partial);
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        for (text, status) in [
            ("nonsense\r\n\r\n", Status::BadRequest),
            ("GET /a HTTP/1.1\r\n\r\n", Status::BadRequest),
            ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Status::BadRequest),
            ("GET /a HTTP/2.0\r\n\r\n", Status::Version),
            ("POST /a HTTP/1.1\r\nHost: a\r\n\r\n", Status::MethodNotAllowed),
            ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", Status::BadRequest),
            ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", Status::BodyTooLarge),
            (
                "GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BodyTooLarge,
            ),
        ] {
            assert_eq!(refused(text), status, "{text:?}");
        }
    }

    #[test]
    fn oversized_requests_are_refused() {
        let long = "a".repeat(HEAD_BYTES_MAX);
        assert_eq!(refused(&format!("GET /{long}")), Status::HeadTooLarge);
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Status::HeadTooLarge);
    }

    #[test]
    fn paths_that_step_up_are_refused() {
        assert_eq!(path("/a%20b?c=..").as_deref(), Some("/a b"));
        for target in ["/../a", "/a/../../b", "/%2e%2e/a", "/a%2f..%2F..", "/a%00", "/%zz", "/%4"] {
            assert_eq!(path(target), None, "{target}");
        }
        assert_eq!(path("http://a/b"), None);
    }
}
