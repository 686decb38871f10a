//! The files of the server: in a directory, and in an unherd cache.

use std::collections::HashMap;
use std::path::Path;

use unherd::{Cache, File, Io, OpenOptions};

use crate::files::{ScratchDir, check_space};
use crate::random::{Random, mix_all};
use crate::{Job, LoadError};

/// A file no larger than this is one page, and goes out in one call.
pub(super) const PAGE_BYTES: usize = 64 << 10;

/// What is in each file: random bytes, of different sizes. The clients know them too.
#[derive(Debug)]
pub(super) struct Contents(Vec<Vec<u8>>);

impl Contents {
    pub(super) fn random(job: &Job) -> Result<Self, LoadError> {
        let files = job.params.at_least_one("files")?;
        let bytes_max = job.params.at_least_one("file-bytes")?;
        if files > 10_000 {
            return Err(LoadError::usage("files: give at most 10000"));
        }
        let file = |number: usize| {
            let mut random = Random::new(mix_all(&[job.seed, number as u64]));
            let bytes_min = bytes_max.div_ceil(16);
            let bytes = bytes_min + random.below(bytes_max - bytes_min + 1);
            (0..bytes).map(|_| random.next_word() as u8).collect()
        };
        Ok(Self((0..files).map(file).collect()))
    }

    pub(super) fn files(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// A sum over all bytes, for the round's check.
    pub(super) fn sum(&self) -> u64 {
        let bytes =
            |file: &Vec<u8>| file.iter().fold(0, |sum, byte| mix_all(&[sum, (*byte).into()]));
        self.0.iter().map(bytes).fold(0, |sum, file| mix_all(&[sum, file]))
    }
}

/// What comes before the number in the name of a file.
const NAME: &str = "file-";

/// The target of a file.
pub(super) fn target(number: usize) -> String {
    format!("/{NAME}{number}")
}

/// A response with its body, as it goes out.
pub(super) fn response(body: &[u8]) -> Vec<u8> {
    let mut bytes = head("200 OK", body.len() as u64, true);
    bytes.extend(body);
    bytes
}

/// Status line and headers.
pub(super) fn head(status: &str, body_bytes: u64, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "" } else { "Connection: close\r\n" };
    format!("HTTP/1.1 {status}\r\nContent-Length: {body_bytes}\r\n{connection}\r\n").into_bytes()
}

/// What can be had. Which file a path names is decided once, when the site is opened, so no request
/// can reach another.
#[derive(Debug)]
pub(super) struct Site {
    files: HashMap<String, File>,
    /// For the floor: whole responses by number.
    canned: Option<Vec<Vec<u8>>>,
    // Dropped behind the files.
    _dir: Option<ScratchDir>,
}

impl Site {
    /// Writes the contents into a directory of the round's own, and serves that.
    pub(super) fn write(job: &Job, contents: &Contents, canned: bool) -> Result<Self, LoadError> {
        let bytes: usize = contents.files().iter().map(Vec::len).sum();
        check_space(job.dir()?, bytes as u64)?;
        let dir = ScratchDir::create(job.dir()?, "web")?;
        for (number, bytes) in contents.files().iter().enumerate() {
            let path = dir.file(number);
            std::fs::write(&path, bytes).map_err(|source| LoadError::Open { path, source })?;
        }
        let mut site = Self::open(dir.path())?;
        site.canned = canned.then(|| contents.files().iter().map(|body| response(body)).collect());
        site._dir = Some(dir);
        Ok(site)
    }

    /// Serves the regular files of a directory, not of those below. A link is served if what it
    /// leads to is in the directory.
    pub(super) fn open(root: &Path) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Directory { dir: root.into(), source };
        let root = std::fs::canonicalize(root).map_err(failed)?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A link that leads nowhere is not served.
            let Ok(path) = std::fs::canonicalize(entry.path()) else { continue };
            let is_inside = path.parent() == Some(&*root) && path.is_file();
            if let (true, Ok(name)) = (is_inside, entry.file_name().into_string()) {
                found.push((name, path));
            }
        }
        let bytes = found.iter().map(|(_, path)| path.metadata().map_or(0, |file| file.len()));
        let pages: u64 = bytes.map(|bytes| bytes.div_ceil(PAGE_BYTES as u64)).sum();
        let setup = |error: &dyn std::fmt::Display| LoadError::Setup {
            name: "the cache".to_owned(),
            message: error.to_string(),
        };
        let cache = Cache::builder()
            .io(Io::Blocking)
            .capacity((pages as usize + SPARE_PAGES) * PAGE_BYTES)
            .page_size(PAGE_BYTES)
            .build()
            .map_err(|error| setup(&error))?;
        let open = |(name, path): (String, _)| {
            // Links may lead to one file twice, and two handles of it share a lock.
            let file = cache.open(path, OpenOptions::new()).map_err(|error| setup(&error))?;
            Ok((format!("/{name}"), file))
        };
        let files = found.into_iter().map(open).collect::<Result<_, LoadError>>()?;
        Ok(Self { files, canned: None, _dir: None })
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// The floor's answer to a request that `bytes` begin with: of which it looks at the number
    /// alone, and takes for granted that it is one of the clients'.
    pub(super) fn canned(&self, bytes: &[u8]) -> Option<(usize, &[u8])> {
        let canned = self.canned.as_ref()?;
        let length = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let digits = bytes.get("GET /".len() + NAME.len()..)?;
        let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
        let number = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
        Some((length, canned.get(number)?))
    }

    pub(super) fn is_canned(&self) -> bool {
        self.canned.is_some()
    }
}

/// Beside those of the files: a cache wants some.
const SPARE_PAGES: usize = 16;
