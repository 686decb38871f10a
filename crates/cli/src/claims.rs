//! `unherd claims`: runs the published claims again. `cargo x claims` calls it.
//!
//! Claims with the same command share one run. One that fails does not end the others, and what was
//! found is kept after each command: an hour of measuring is not lost to its last minute.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use unherd_lab::claims::{Claim, Claims, Outcome, RecordedFigure, updated};
use unherd_lab::{BenchResult, ComparisonLine, Error};
use unherd_sys::Timestamp;

use crate::arguments::ClaimsArgs;
use crate::bench::read_result;
use crate::output::{self, Failure};

/// Runs some claims or all, says how each fared, and keeps what was found if asked to.
pub(crate) fn run(args: &ClaimsArgs) -> Result<ExitCode, Failure> {
    let (mut text, claims) = read(&args.file)?;
    let known = |name: &&String| claims.claims.iter().any(|claim| claim.name == **name);
    if let Some(name) = args.names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = claims.claims.iter().map(|claim| &*claim.name).collect();
        let what = format!("no claim is called '{name}'");
        return Err(Failure::usage(&what, &format!("there are: {}", known.join(", "))));
    }
    let batches = claims.batches(&args.names);
    if args.table && args.page.exists() {
        write_table(args, &claims)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.table || args.list {
        let shown = if args.table { claims.markdown_table() } else { list(&claims, &batches) };
        output::print(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed: Vec<&str> = Vec::new();
    for batch in batches {
        let began = Timestamp::now();
        let result = run_command(&claims.claims[batch[0]], args)?;
        let seconds = Timestamp::now().since(began).as_secs_f64();
        for claim in batch.iter().map(|&index| &claims.claims[index]) {
            let judged = result.as_ref().map_err(String::clone).and_then(|r| claim.judge(r));
            output::print(&line(claim, &judged))?;
            let is_good = |it: &Outcome| it.is_met && it.is_regression != Some(true);
            if !judged.as_ref().is_ok_and(is_good) {
                failed.push(&claim.name);
            }
            if let (true, Some(commit), Ok(outcome)) = (args.update, &args.commit, &judged) {
                let found = found(outcome, commit, seconds);
                text = updated(&text, &claim.name, &found).map_err(|what| malformed(args, what))?;
            }
        }
        if args.update {
            write(&args.file, &text)?;
            if args.page.exists() {
                write_table(args, &read(&args.file)?.1)?;
            }
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let what =
        format!("failed, not met or worse than before: {}; see the lines above", failed.join(", "));
    Err(Failure::Unmet(what))
}

fn malformed(args: &ClaimsArgs, what: String) -> Error {
    Error::Malformed { path: args.file.clone(), what }
}

fn read(file: &Path) -> Result<(String, Claims), Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|e| Failure::usage(&format!("{shown}: {e}"), "name the file by --file"))?;
    let malformed = |what| Error::Malformed { path: file.to_owned(), what };
    let claims = Claims::parse(&text).map_err(malformed)?;
    Ok((text, claims))
}

/// A line for each command: how long it took when it ran last, and the claims that it answers.
fn list(claims: &Claims, batches: &[Vec<usize>]) -> String {
    let mut text = String::new();
    let (mut sum, mut unknown) = (0.0, 0);
    for batch in batches {
        let of = |&index: &usize| &claims.claims[index];
        let took = batch.iter().map(of).find_map(|claim| claim.last.as_ref()?.seconds);
        let took = match took {
            Some(seconds) => {
                sum += seconds;
                format!("{seconds:.0} s")
            }
            None => {
                unknown += 1;
                "?".to_owned()
            }
        };
        for claim in batch.iter().map(of) {
            let target: String = claim.target.clone().into();
            let _ = writeln!(text, "{took:>7}  {:<28} {target}", claim.name);
        }
    }
    let _ = writeln!(
        text,
        "{sum:>5.0} s  for {} of {} commands, {unknown} unknown; one command runs once",
        batches.len() - unknown,
        batches.len()
    );
    text
}

/// Runs the command of a claim with its result as JSON; what it says goes to standard error as
/// always. `Err` within `Ok`: what was run failed, which is no reason not to run the next.
fn run_command(claim: &Claim, args: &ClaimsArgs) -> Result<Result<BenchResult, String>, Failure> {
    let arguments = if args.quick { claim.quick_arguments() } else { claim.arguments() };
    let arguments = arguments.map_err(|what| malformed(args, what))?;
    let output = std::env::current_exe().and_then(|own| {
        let mut command = Command::new(own);
        command.args(arguments).args(["--format", "json"]).stderr(Stdio::inherit()).output()
    });
    let cannot = |error| {
        Failure::usage(&format!("cannot run claim '{}': {error}", claim.name), "build it again")
    };
    let output = output.map_err(cannot)?;
    if !output.status.success() {
        return Ok(Err("its command failed; run it by hand".to_owned()));
    }
    let result = read_result(&String::from_utf8_lossy(&output.stdout));
    Ok(result.map_err(|error| error.to_string()))
}

fn line(claim: &Claim, judged: &Result<Outcome, String>) -> String {
    let outcome = match judged {
        Ok(outcome) => outcome,
        Err(why) => return format!("FAILED  {}: {why}\n", claim.name),
    };
    let figure =
        |value: Option<f64>| value.map_or_else(|| "infinite".to_owned(), |v| format!("{v:.4}"));
    let found = &outcome.found;
    let target: String = claim.target.clone().into();
    let regression = match (outcome.is_regression, &claim.last) {
        (Some(true), _) => "; WORSE than the last run",
        (None, Some(last)) if last.machine.is_some() => "; the last run was on another machine",
        _ => "",
    };
    format!(
        "{} {}: {} ({} to {}), {}; target {target}{regression}\n",
        if outcome.is_met { "met    " } else { "NOT MET" },
        claim.name,
        figure(found.ratio),
        figure(found.low),
        figure(found.high),
        found.verdict.word(),
    )
}

fn found(outcome: &Outcome, commit: &str, seconds: f64) -> RecordedFigure {
    let ComparisonLine { ratio, low, high, .. } = outcome.found;
    RecordedFigure {
        ratio,
        low,
        high,
        commit: commit.to_owned(),
        date: unherd_lab::today(),
        machine: Some(outcome.machine.clone()),
        seconds: Some(seconds),
    }
}

/// What stands around the table on its page.
const MARKS: [&str; 2] = ["<!-- claims -->\n", "<!-- /claims -->\n"];

/// Puts the table between the marks of the page.
fn write_table(args: &ClaimsArgs, claims: &Claims) -> Result<(), Failure> {
    let shown = args.page.display();
    let cannot = |e| Failure::usage(&format!("{shown}: {e}"), "name the page by --page");
    let page = fs::read_to_string(&args.page).map_err(cannot)?;
    let around = page.split_once(MARKS[0]).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(MARKS[1])?;
        Some((before, after))
    });
    let Some((before, after)) = around else {
        let [begin, end] = MARKS.map(str::trim_end);
        let what = format!("{shown} has no lines '{begin}' and '{end}'");
        return Err(Failure::usage(&what, "put them around the table"));
    };
    let table = claims.markdown_table();
    write(&args.page, &format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]))
}

/// Written beside and renamed over, so that a full disk does not cost the claims.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let beside = file.with_extension("new");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, file))
        .map_err(|e| Failure::usage(&format!("cannot write {}: {e}", file.display()), "make room"))
}
