//! Why the kernel refuses the programs: a lack of privilege, a lockdown, or a fault of theirs.

use libbpf_rs::ErrorKind;

use crate::tracer::TraceError;

/// Makes an error of what libbpf returned and what it `said`, of `error` if it said nothing, and of
/// the text of `/sys/kernel/security/lockdown`, empty where there is none.
pub(crate) fn refusal(kind: ErrorKind, error: &str, said: &str, lockdown: &str) -> TraceError {
    let is_permission = kind == ErrorKind::PermissionDenied && !verifier_spoke(said);
    if lockdown.contains("[confidentiality]") && (is_permission || lacks_reading(said)) {
        return TraceError::Lockdown;
    }
    if is_permission {
        return TraceError::NotPermitted;
    }
    TraceError::Load(if said.is_empty() { error.to_owned() } else { said.to_owned() })
}

/// The verifier refuses with the same number as a lack of privilege does, but tells why.
fn verifier_spoke(said: &str) -> bool {
    said.contains("PROG LOAD LOG")
}

/// A lockdown does not refuse programs as such: it takes the functions away that read the kernel's
/// memory, so that the verifier knows none of their names (`bpf_probe_read_kernel`, and what libbpf
/// puts in its place).
fn lacks_reading(said: &str) -> bool {
    // KERNEL: 6.4 has the first, those before it the second.
    ["cannot use helper bpf_probe_read", "unknown func bpf_probe_read"]
        .iter()
        .any(|refused| said.contains(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: &str = "[none] integrity confidentiality\n";
    const INTEGRITY: &str = "none [integrity] confidentiality\n";
    const LOCKED: &str = "none integrity [confidentiality]\n";

    fn log(line: &str) -> String {
        format!(
            "libbpf: prog 'uh_exec': BPF program load failed: Invalid argument\n\
             libbpf: prog 'uh_exec': -- BEGIN PROG LOAD LOG --\n{line}\n-- END PROG LOAD LOG --"
        )
    }

    #[test]
    fn lack_of_privilege_is_no_lockdown() {
        let of = |lockdown| refusal(ErrorKind::PermissionDenied, "EPERM", "", lockdown);
        for lockdown in ["", FREE, INTEGRITY] {
            assert!(matches!(of(lockdown), TraceError::NotPermitted), "{lockdown}");
        }
        assert!(matches!(of(LOCKED), TraceError::Lockdown));
        assert_eq!(of(LOCKED).to_string().lines().count(), 1);
    }

    #[test]
    fn a_lockdown_takes_functions_away() {
        for line in [
            "program of this type cannot use helper bpf_probe_read_kernel#113",
            "program of this type cannot use helper bpf_probe_read#4",
            "unknown func bpf_probe_read_kernel#113",
        ] {
            let of = |lockdown| refusal(ErrorKind::InvalidInput, "EINVAL", &log(line), lockdown);
            assert!(matches!(of(LOCKED), TraceError::Lockdown), "{line}");
            assert!(matches!(of(FREE), TraceError::Load(_)), "{line}");
        }
    }

    #[test]
    fn lockdown_hides_no_verifier_message() {
        let said = log("R1 invalid mem access 'scalar'");
        for kind in [ErrorKind::PermissionDenied, ErrorKind::InvalidInput] {
            for lockdown in [FREE, LOCKED] {
                match refusal(kind, "EACCES", &said, lockdown) {
                    TraceError::Load(text) => assert_eq!(text, said),
                    error => panic!("{error}"),
                }
            }
        }
        let silent = refusal(ErrorKind::InvalidInput, "EINVAL", "", FREE);
        assert!(matches!(silent, TraceError::Load(text) if text == "EINVAL"));
    }
}
