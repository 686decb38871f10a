//! One line that says which machine it was.

use serde_json::Value;

use crate::size::format_size;

/// Processor, their number, memory and kernel of a described machine: figures of machines that
/// differ in it are not compared.
pub(crate) fn fingerprint(machine: &Value) -> String {
    let text = |field: &str| machine[field].as_str().unwrap_or("unknown").to_owned();
    let number = |field: &str| machine[field].as_u64().unwrap_or(0);
    // In quarters of a GiB: the kernel's own share differs from start to start.
    let quarter = 1 << 28;
    let memory = (number("memory_bytes") + quarter / 2) / quarter * quarter;
    let cpus = number("cpus");
    let processor = text("cpu_model");
    format!("{processor}, {cpus} CPUs, {}, {}", format_size(memory), text("kernel"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn machines_differ_by_what_changes_figures() {
        let machine = |cpus: u32, memory: u64| {
            fingerprint(&json!({
                "cpu_model": "Fast 9", "cpus": cpus, "memory_bytes": memory,
                "kernel": "Linux 6.18.44", "cpu_governor": null
            }))
        };
        let shown = machine(2, (8 << 30) - 300_000_000);
        assert_eq!(shown, "Fast 9, 2 CPUs, 7.8 GiB, Linux 6.18.44");
        assert_eq!(shown, machine(2, (8 << 30) - 300_100_000));
        assert_ne!(shown, machine(4, (8 << 30) - 300_000_000));
        assert_eq!(fingerprint(&Value::Null), "unknown, 0 CPUs, 0 B, unknown");
    }
}
