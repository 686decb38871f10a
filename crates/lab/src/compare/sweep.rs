//! What is swept: options of a comparison that were given several values.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::plan::Cell;
use crate::size::parse_size;

/// The option of a cell that is the memory of its processes.
const MEMORY: &str = "memory";

/// The points at which the commands are compared: every combination of these.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Values that stand for `{NAME}` in the commands.
    pub values: Vec<(String, Vec<String>)>,
    /// The first N CPUs; empty for all.
    pub cpus: Vec<usize>,
    /// The memory of each process, in a cgroup; empty for none.
    pub memory_bytes: Vec<u64>,
    /// Of these combinations only these; empty for all.
    pub only: Vec<Cell>,
}

impl Sweep {
    /// `NAME=VALUE,VALUE…`
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where that is none.
    pub fn values(text: &str) -> Result<(String, Vec<String>), Error> {
        let wrong =
            |what: &str| Error::usage(format!("--sweep '{text}' {what}"), "give NAME=VALUE,VALUE…");
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("has no values"))?;
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong("has no name of letters and digits"));
        }
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        if values.iter().any(String::is_empty) {
            return Err(wrong("has an empty value"));
        }
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let is_range = |value: &&String| {
            let ends = value.split_once("..").or_else(|| value.split_once('-'));
            ends.is_some_and(|(from, to)| is_number(from) && is_number(to))
        };
        if let Some(range) = values.iter().find(is_range) {
            return Err(wrong(&format!("has {range}, which is one value and no range")));
        }
        Ok((name.to_owned(), values))
    }

    /// The cells; `texts` is all that names may stand in.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a name that stands nowhere, or one or a value that is given twice.
    pub(crate) fn cells(&self, texts: &[&str]) -> Result<Vec<Cell>, Error> {
        let twice = |what: String| Error::usage(format!("{what} is given twice"), "name it once");
        for (index, (name, _)) in self.values.iter().enumerate() {
            if self.values[..index].iter().any(|(other, _)| other == name) || name == MEMORY {
                return Err(twice(format!("--sweep {name}")));
            }
            let place = placeholder(name);
            if !texts.iter().any(|text| text.contains(&place)) {
                return Err(Error::usage(
                    format!("{place} stands in no command, so --sweep {name} changes nothing"),
                    "write it where the value belongs",
                ));
            }
        }
        let mut dimensions: Vec<(&str, Vec<String>)> =
            self.values.iter().map(|(name, values)| (&**name, values.clone())).collect();
        if !self.memory_bytes.is_empty() {
            let shown = |bytes: &u64| match bytes % (1 << 20) {
                0 => format!("{}M", bytes >> 20),
                _ => bytes.to_string(),
            };
            dimensions.push((MEMORY, self.memory_bytes.iter().map(shown).collect()));
        }
        let mut points: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
        for (name, values) in dimensions {
            let with = |point: &BTreeMap<String, String>, value: &String| {
                let mut point = point.clone();
                point.insert(name.to_owned(), value.clone());
                point
            };
            points = points
                .iter()
                .flat_map(|point| values.iter().map(move |value| with(point, value)))
                .collect();
        }
        let cpus: Vec<Option<usize>> = match &*self.cpus {
            [] => vec![None],
            given => given.iter().copied().map(Some).collect(),
        };
        let mut cells: Vec<Cell> = Vec::new();
        for params in points {
            for &cpus in &cpus {
                let cell = Cell { threads: 0, cpus, params: params.clone() };
                if cells.contains(&cell) {
                    return Err(twice("a swept value".to_owned()));
                }
                cells.push(cell);
            }
        }
        cells.retain(|cell| self.only.is_empty() || self.only.contains(cell));
        Ok(cells)
    }
}

/// `text` with the values of a cell in the place of their names.
pub(crate) fn filled(text: &str, cell: &Cell) -> String {
    let names = cell.params.iter().filter(|(name, _)| *name != MEMORY);
    names.fold(text.to_owned(), |text, (name, value)| text.replace(&placeholder(name), value))
}

fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// The memory of a cell's processes.
pub(crate) fn memory_bytes(cell: &Cell) -> Option<u64> {
    cell.params.get(MEMORY).and_then(|text| parse_size(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_cell() {
        let sweep = Sweep {
            values: vec![Sweep::values("n=1,2,4").unwrap()],
            cpus: vec![1, 2],
            memory_bytes: vec![64 << 20],
            only: Vec::new(),
        };
        let cells = sweep.cells(&["./it --jobs={n}"]).unwrap();
        assert_eq!(cells.len(), 6);
        assert_eq!(filled("./it --jobs={n} {m}", &cells[5]), "./it --jobs=4 {m}");
        assert_eq!((cells[5].cpus, memory_bytes(&cells[5])), (Some(2), Some(64 << 20)));
        let none = Sweep::default().cells(&[]).unwrap();
        assert_eq!(none, [Cell { threads: 0, cpus: None, params: BTreeMap::new() }]);
    }

    #[test]
    fn sweeps_without_sense_are_refused() {
        for text in ["n", "n=", "=1,2", "a b=1", "n=1,,2"] {
            assert!(Sweep::values(text).is_err(), "{text}");
        }
        let refused = |values: &[&str], command: &str| {
            let values = values.iter().map(|text| Sweep::values(text).unwrap()).collect();
            let sweep = Sweep { values, ..Sweep::default() };
            sweep.cells(&[command]).unwrap_err().to_string()
        };
        assert!(refused(&["n=1,2"], "./it").contains("{n} stands in no command"));
        assert!(refused(&["n=1,2", "n=3"], "./it {n}").contains("--sweep n is given twice"));
        assert!(refused(&["n=1,1"], "./it {n}").contains("a swept value is given twice"));
    }
}
