//! A key/value store with a write-ahead log, on the page cache: `kv NAME get KEY`, or
//! `kv NAME put KEY VALUE [KEY VALUE…]`, which sets all of them or none. Keys are numbers above 0.

mod store;

use std::error::Error;
use std::num::NonZeroU64;
use std::process::ExitCode;

use store::{Store, Value};
use unherd::Cache;

fn value(text: &str) -> Result<Value, String> {
    let mut value = Value::default();
    let room =
        value.get_mut(..text.len()).ok_or(format!("{text}: a value has 24 bytes at most"))?;
    room.copy_from_slice(text.as_bytes());
    Ok(value)
}

fn key(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| format!("{text}: a key is a whole number above 0"))
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("kv: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let cache = Cache::builder().capacity(16 << 20).build()?;
    let open =
        |name| Store::open(&cache, name, 1024, 1 << 20).map_err(|error| format!("{name}: {error}"));
    match words[..] {
        [name, "get", number] => match open(name)?.get(key(number)?)? {
            Some(value) => {
                println!("{}", String::from_utf8_lossy(&value).trim_end_matches('\0'));
            }
            None => return Err(format!("there is no key {number}").into()),
        },
        [name, "put", ref pairs @ ..] if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let pairs = pairs
                .chunks(2)
                .map(|pair| Ok::<(NonZeroU64, Value), String>((key(pair[0])?, value(pair[1])?)));
            open(name)?.commit(&pairs.collect::<Result<Vec<_>, _>>()?)?;
        }
        _ => return Err("usage: kv NAME get KEY | kv NAME put KEY VALUE [KEY VALUE…]".into()),
    }
    Ok(ExitCode::SUCCESS)
}
