//! Sampling one round: who uses the processors, and who puts threads to sleep.

use unherd_host::{Profile, SampleKind, SampleScope, Sampler, SamplerError};

use crate::result::Profiled;

/// Off the beat of timers that run at round numbers.
const HERTZ: u32 = 997;
/// A prime for the same reason; a herd makes switches by the hundred thousand.
const EVERY_SWITCH: u32 = 7;

/// Whose work a profile is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// The runner's, with all that it starts.
    Runner,
    /// The runner's alone: what it starts are its clients.
    Server,
    /// The kernel threads' as well, which belong to no child.
    Machine,
}

/// Runs `round` under two samplers. Where the kernel does not permit them, the round is not run:
/// its figures are not judged, so there is nothing else to gain from it.
pub(crate) fn sample<E>(
    whose: Sampled,
    round: impl FnOnce() -> Result<(), E>,
) -> Result<Profiled, E> {
    // What else runs meanwhile is left out at the end.
    let whole_machine = whose == Sampled::Machine;
    let scope = if whole_machine { SampleScope::WholeMachine } else { SampleScope::NextChild };
    let start = |kind| Sampler::start(kind, &scope);
    let samplers = start(SampleKind::CpuClock { hertz: HERTZ })
        .and_then(|cpu| Ok((cpu, start(SampleKind::ContextSwitches { every: EVERY_SWITCH })?)));
    let (cpu, switches) = match samplers {
        Ok(samplers) => samplers,
        Err(error) => return Ok(refused(&error)),
    };
    round()?;
    let finish = |sampler: Sampler| match whose {
        Sampled::Runner => sampler.finish(),
        Sampled::Server => sampler.finish_without_descendants(),
        Sampled::Machine => sampler.finish_without_foreign(),
    };
    let both = finish(cpu).and_then(|cpu| Ok((cpu, finish(switches)?)));
    Ok(match both {
        Ok((cpu, switches)) => {
            Profiled::Taken { cpu: shortened(cpu), switches: shortened(switches) }
        }
        Err(error) => refused(&error),
    })
}

fn refused(error: &SamplerError) -> Profiled {
    Profiled::Refused { why: error.to_string() }
}

/// The record keeps what a reader may ask for, not every function that was hit once.
fn shortened(mut profile: Profile) -> Profile {
    const KEPT: usize = 100;
    profile.rows.truncate(KEPT);
    profile
}
