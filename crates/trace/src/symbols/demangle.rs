//! Names of functions as their languages write them.

/// The name as the source has it. A name of C stays as it is: alone, `w` or `i` could be taken for
/// a type of C++.
pub(super) fn demangled(name: &str) -> String {
    let is_mangled = ["_Z", "__Z", "___Z", "_R", "__R"].iter().any(|mark| name.starts_with(mark));
    if !is_mangled {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}
