//! STUB
use super::plan::Plan;
use crate::{Job, LoadError, Round};

pub(super) enum Filter {
    ByKey,
    Nothing,
}

pub(super) fn run(job: &Job, plan: &Plan, filter: Filter) -> Result<Round, LoadError> {
    todo!()
}
