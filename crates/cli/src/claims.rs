//! `unherd claims`: runs the published claims again. `cargo x claims` calls it.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use unherd_lab::claims::{Claim, Claims, Found, Outcome};
use unherd_lab::{ComparisonLine, Error};

use crate::arguments::ClaimsArgs;
use crate::bench::read_result;
use crate::output::{self, Failure};

/// Runs one claim or all, says how each fared, and keeps what was found if asked to.
pub(crate) fn run(args: &ClaimsArgs) -> Result<ExitCode, Failure> {
    let mut claims = read(&args.file)?;
    if args.table {
        output::print(&claims.markdown_table())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.name
        && claims.claims.iter().all(|claim| claim.name != *name)
    {
        let known: Vec<&str> = claims.claims.iter().map(|claim| &*claim.name).collect();
        let what = format!("no claim is called '{name}'");
        return Err(Failure::usage(&what, &format!("there are: {}", known.join(", "))));
    }
    let mut failed = Vec::new();
    for claim in &mut claims.claims {
        if args.name.as_ref().is_some_and(|name| *name != claim.name) {
            continue;
        }
        let outcome = run_one(claim, &args.file)?;
        output::print(&line(claim, &outcome))?;
        if !outcome.is_met || outcome.is_regression {
            failed.push(claim.name.clone());
        }
        if let Some(commit) = &args.commit {
            claim.last = Some(found(&outcome, commit));
        }
    }
    if args.update {
        write(&args.file, &claims)?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let what = format!("not met or worse than before: {}; see the lines above", failed.join(", "));
    Err(Failure::Unmet(what))
}

fn read(file: &Path) -> Result<Claims, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|e| Failure::usage(&format!("{shown}: {e}"), "name the file by --file"))?;
    let malformed = |what| Error::Malformed { path: file.to_owned(), what };
    Ok(Claims::parse(&text).map_err(malformed)?)
}

/// Runs the claim's command with its result as JSON; what it says goes to standard error as always.
fn run_one(claim: &Claim, file: &Path) -> Result<Outcome, Failure> {
    let malformed = |what| Error::Malformed { path: file.to_owned(), what };
    let arguments = claim.arguments().map_err(malformed)?;
    let cannot = |error| {
        Failure::usage(&format!("cannot run claim '{}': {error}", claim.name), "build it again")
    };
    let output = std::env::current_exe()
        .and_then(|own| {
            Command::new(own)
                .args(arguments)
                .args(["--format", "json"])
                .stderr(Stdio::inherit())
                .output()
        })
        .map_err(cannot)?;
    if !output.status.success() {
        let what = format!("claim '{}': its command failed; run it by hand", claim.name);
        return Err(Failure::Unmet(what));
    }
    let result = read_result(&String::from_utf8_lossy(&output.stdout))?;
    Ok(claim.judge(&result).map_err(malformed)?)
}

fn line(claim: &Claim, outcome: &Outcome) -> String {
    let figure =
        |value: Option<f64>| value.map_or_else(|| "infinite".to_owned(), |v| format!("{v:.4}"));
    let found = &outcome.found;
    let target: String = claim.target.clone().into();
    format!(
        "{} {}: {} ({} to {}), {}; target {target}{}\n",
        if outcome.is_met { "met    " } else { "NOT MET" },
        claim.name,
        figure(found.ratio),
        figure(found.low),
        figure(found.high),
        found.verdict.word(),
        if outcome.is_regression { "; WORSE than the last run" } else { "" }
    )
}

fn found(outcome: &Outcome, commit: &str) -> Found {
    let ComparisonLine { ratio, low, high, .. } = outcome.found;
    Found { ratio, low, high, commit: commit.to_owned(), date: unherd_lab::today() }
}

/// Written beside and renamed over, so that a full disk does not cost the claims.
fn write(file: &Path, claims: &Claims) -> Result<(), Failure> {
    let beside = file.with_extension("toml.new");
    let malformed = |what| Error::Malformed { path: file.to_owned(), what };
    let text = claims.to_toml().map_err(malformed)?;
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, file))
        .map_err(|e| Failure::usage(&format!("cannot write {}: {e}", file.display()), "make room"))
}
