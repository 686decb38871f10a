//! A crate's table of mutants, `crates/NAME/mutants.txt`.
//!
//! ```text
//! [EMPTY-wait]
//! breaks = fence (A)
//! effect = the waiter misses the condition, and the waker misses the waiter
//! check = loom: wake_races_with_wait
//! file = src/wait_table/wait.rs
//! - fence_after_rmw();
//! + // none
//! ```
//!
//! `-` lines are text that stands exactly once in the file, from the first character behind `- ` to
//! the last; the `+` lines below replace it. A row may have several such edits, in several files.
//! `check = shuttle: NAME` names one of shuttle's models, `check = test: NAME` an ordinary test. A
//! row with `unseen = REASON` alone is for a label
//! of an ordering (`ORDER[LABEL]`) that no checker can see broken.

use std::path::Path;

use crate::failure::Failure;

/// The name of a crate's table.
pub(crate) const FILE: &str = "mutants.txt";

/// The table of one crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// The folder of the crate, from the root of the repository.
    pub(crate) folder: String,
    pub(crate) rows: Vec<Row>,
}

/// One mutant, or one ordering without a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) by: By,
    /// What is removed or weakened.
    pub(crate) breaks: String,
    /// What happens then.
    pub(crate) effect: String,
    pub(crate) edits: Vec<Edit>,
}

/// What sees the mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// A scene under loom.
    Loom(String),
    /// A scene under shuttle.
    Shuttle(String),
    /// An ordinary test.
    Test(String),
    /// Nothing, for this reason.
    Nobody(String),
}

/// A text that stands once in a file of the crate, and what replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) file: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

impl Table {
    /// The name of the crate's folder.
    pub(crate) fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }

    /// The table's own path, from the root of the repository.
    pub(crate) fn path(&self) -> String {
        format!("{}/{FILE}", self.folder)
    }
}

impl Row {
    /// The name of the check; empty if there is none.
    pub(crate) fn check(&self) -> &str {
        match &self.by {
            By::Loom(check) | By::Shuttle(check) | By::Test(check) => check,
            By::Nobody(_) => "",
        }
    }
}

impl Edit {
    /// `text` with the edit made; the error says how often the old text stands in it.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.old).count() {
            1 => Ok(text.replacen(&self.old, &self.new, 1)),
            count => {
                let line = self.old.lines().next().unwrap_or_default();
                Err(format!("`{line}` stands {count} times in {}, not once", self.file))
            }
        }
    }
}

/// The tables of all crates that have one, in the order of their names.
pub(crate) fn read(root: &Path) -> Result<Vec<Table>, Failure> {
    let cannot = |error: std::io::Error| Failure::Failed(format!("cannot list crates/: {error}"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).map_err(cannot)? {
        names.push(entry.map_err(cannot)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut tables: Vec<Table> = Vec::new();
    for name in names {
        let folder = format!("crates/{name}");
        let Ok(text) = std::fs::read_to_string(root.join(&folder).join(FILE)) else { continue };
        let rows =
            parse(&text).map_err(|what| Failure::Failed(format!("{folder}/{FILE}:{what}")))?;
        let known = |row: &&Row| tables.iter().any(|t| t.rows.iter().any(|r| r.id == row.id));
        if let Some(twice) = rows.iter().find(known) {
            let what = format!("{folder}/{FILE}: `{}` stands in another table too", twice.id);
            return Err(Failure::Failed(what));
        }
        tables.push(Table { folder, rows });
    }
    Ok(tables)
}

/// A row as far as it was read.
#[derive(Default)]
struct Draft {
    id: String,
    by: Option<By>,
    breaks: String,
    effect: String,
    file: String,
    edits: Vec<Edit>,
    /// Whether the last line was a `+` line: a `-` line begins another edit then.
    replacing: bool,
}

/// Reads a table. An error begins with the number of its line.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    let mut draft: Option<Draft> = None;
    let mut number = 0;
    for line in text.lines() {
        number += 1;
        let error = |what: &str| format!("{number}: {what}");
        let id = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        if let Some(id) = id {
            rows.extend(draft.take().map(Draft::finish).transpose().map_err(|e| error(&e))?);
            if rows.iter().any(|row| row.id == id) {
                return Err(error(&format!("`{id}` stands twice")));
            }
            draft = Some(Draft { id: id.to_owned(), ..Draft::default() });
        } else if !line.is_empty() && !line.starts_with('#') {
            let draft = draft.as_mut().ok_or_else(|| error("no row has begun"))?;
            draft.line(line).map_err(|what| error(&what))?;
        }
    }
    let last = draft.map(Draft::finish).transpose();
    rows.extend(last.map_err(|what| format!("{number}: {what}"))?);
    Ok(rows)
}

impl Draft {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some((sign @ ("-" | "+"), text)) = line.split_at_checked(1) {
            return self.edit(sign == "+", text.strip_prefix(' ').unwrap_or(text));
        }
        let (key, value) =
            line.split_once(" = ").ok_or_else(|| format!("`{line}` says nothing"))?;
        match (key, value.split_once(": ")) {
            ("breaks", _) => self.breaks = value.to_owned(),
            ("effect", _) => self.effect = value.to_owned(),
            ("file", _) => self.file = value.to_owned(),
            ("unseen", _) => self.by = Some(By::Nobody(value.to_owned())),
            ("check", Some(("loom", test))) => self.by = Some(By::Loom(test.to_owned())),
            ("check", Some(("shuttle", test))) => self.by = Some(By::Shuttle(test.to_owned())),
            ("check", Some(("test", test))) => self.by = Some(By::Test(test.to_owned())),
            _ => return Err(format!("`{line}` is not known")),
        }
        Ok(())
    }

    fn edit(&mut self, replaces: bool, text: &str) -> Result<(), String> {
        let begins = !replaces && (self.replacing || self.edits.is_empty());
        if begins {
            let file = self.file.clone();
            self.edits.push(Edit { file, old: String::new(), new: String::new() });
        }
        let edit = self.edits.last_mut().ok_or("`+` without `-`")?;
        let first = begins || replaces && !self.replacing;
        let side = if replaces { &mut edit.new } else { &mut edit.old };
        if !first {
            side.push('\n');
        }
        side.push_str(text);
        self.replacing = replaces;
        Ok(())
    }

    fn finish(self) -> Result<Row, String> {
        let id = &self.id;
        let by = self.by.ok_or_else(|| format!("`{id}` has no check, and no reason why"))?;
        let has_edits = !self.edits.is_empty()
            && self.edits.iter().all(|edit| !edit.file.is_empty() && edit.old != edit.new);
        let is_whole = match by {
            By::Nobody(_) => self.edits.is_empty(),
            _ => has_edits && !self.breaks.is_empty() && !self.effect.is_empty(),
        };
        if !is_whole {
            return Err(format!("`{id}` is not whole: see the top of xtask's `table.rs`"));
        }
        let (breaks, effect, edits) = (self.breaks, self.effect, self.edits);
        Ok(Row { id: self.id, by, breaks, effect, edits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "# head\n[A-x]\nbreaks = b\neffect = e\ncheck = loom: t\nfile = f\n\
                       - one\n-     two\n+ three\n\n- four\n+ \n[B]\nunseen = why: it is\n";

    #[test]
    fn rows_have_edits_or_a_reason() {
        let rows = parse(ROW).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].by, By::Loom("t".to_owned()));
        let [first, second] = rows[0].edits.as_slice() else { panic!("two edits") };
        assert_eq!((first.old.as_str(), first.new.as_str()), ("one\n    two", "three"));
        assert_eq!((second.old.as_str(), second.new.as_str()), ("four", ""));
        assert_eq!(rows[1].by, By::Nobody("why: it is".to_owned()));
    }

    #[test]
    fn faults_of_a_table_are_named() {
        assert!(parse("x = y").unwrap_err().contains("1: no row"));
        assert!(parse("[A]\n").unwrap_err().contains("no check"));
        assert!(parse("[A]\nunseen = b\n[A]\n").unwrap_err().contains("3: `A` stands twice"));
        assert!(parse("[A]\ncheck = loom: t\n").unwrap_err().contains("not whole"));
        assert!(parse("[A]\ncheck = else: t\n").unwrap_err().contains("not known"));
        assert!(parse("[A]\n+ t\n").unwrap_err().contains("without `-`"));
        assert!(parse(&ROW.replace("[B]", "[B]\n- x\n+ y\nfile = f")).is_err());
    }

    #[test]
    fn a_text_must_stand_exactly_once() {
        let edit = Edit { file: "f".to_owned(), old: "a".to_owned(), new: "b".to_owned() };
        assert_eq!(edit.apply("xay"), Ok("xby".to_owned()));
        assert!(edit.apply("xy").unwrap_err().contains("0 times in f"));
        assert!(edit.apply("aa").unwrap_err().contains("2 times"));
    }
}
