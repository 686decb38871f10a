use std::process::{Command, Stdio};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use super::*;

const KALLSYMS: &str = "\
0000000000001000 T schedule
0000000000001000 T schedule_alias
0000000000001200 t do_epoll_wait
0000000000001300 d not_code
0000000000001800 t nf_hook\t[nf_tables]
0000000000002000 T last
";

fn process(maps: Vec<Mapping>) -> Process {
    Process { pid: u32::MAX, maps, ..Process::default() }
}

fn mapping(start: u64, end: u64, offset: u64, path: &str) -> Mapping {
    Mapping { start, end, offset, path: path.into(), open_path: path.into() }
}

#[inline(never)]
fn known_function() -> u64 {
    std::hint::black_box(known_function as *const () as u64)
}

fn own_maps() -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps of this process");
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let path = fields.get(5).copied().unwrap_or_default();
        fields[1]
            .contains('x')
            .then(|| mapping(number(start), number(end), number(fields[2]), path))
    };
    maps.lines().filter_map(parse).collect()
}

#[test]
fn own_function_has_name_place_size() {
    let mut symbols = Symbols::new();
    let this = process(own_maps());
    let address = known_function();
    let frames = symbols.user(&this, address, true);
    let frame = frames.last().unwrap();
    assert!(frame.name.ends_with("symbols::tests::known_function"), "{frame:?}");
    assert_eq!(frame.file.as_deref().map(file_name).as_deref(), Some("tests.rs"), "{frame:?}");
    assert!(frame.line.is_some() && frame.size_bytes.is_some_and(|size| size > 0), "{frame:?}");
    assert_eq!(frame.place().unwrap().split(':').next(), Some("tests.rs"));
    // The instruction before the first belongs to something else: a return address there does too.
    let before = symbols.user(&this, address, false);
    assert!(before.iter().all(|frame| !frame.name.ends_with("known_function")), "{before:?}");
    assert_eq!(symbols.unknown().user_asked, 2);
}

#[inline(always)]
fn inlined_function(number: u64) -> u64 {
    std::hint::black_box(number).wrapping_mul(3) // The line of the inner frame.
}

#[inline(never)]
fn outer_function(number: u64) -> u64 {
    inlined_function(number) + std::hint::black_box(1) // The line of the outer frame.
}

#[test]
fn inlined_frames_come_first_with_lines() {
    let line_of = |text: &str| {
        let lines = include_str!("tests.rs").lines();
        1 + lines.take_while(|line| !line.ends_with(text)).count() as u32
    };
    let (inner, outer) = (line_of("line of the inner frame."), line_of("line of the outer frame."));
    let (mut symbols, this) = (Symbols::new(), process(own_maps()));
    let start = std::hint::black_box(outer_function as fn(u64) -> u64) as *const () as u64;
    let whole = symbols.user(&this, start, true);
    let size = whole.last().and_then(|frame| frame.size_bytes).expect("a function has a size");
    let found = (start..start + size).map(|address| symbols.user(&this, address, true));
    let is_inner = |frames: &Rc<[Frame]>| {
        let named = |frame: &Frame| frame.name.ends_with("tests::inlined_function");
        frames.iter().any(|frame| named(frame) && frame.line == Some(inner))
    };
    let frames = found.into_iter().find(is_inner).expect("some instruction is of the inner line");
    let (last, inlined) = frames.split_last().expect("never empty");
    assert!(inlined.iter().all(|frame| frame.inlined && frame.size_bytes.is_none()), "{frames:?}");
    assert!(last.name.ends_with("tests::outer_function") && !last.inlined, "{frames:?}");
    assert_eq!(last.line, Some(outer), "{frames:?}");
}

#[test]
fn ended_process_is_still_named() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let libc_of_this = own_maps().into_iter().find(|map| file_name(&map.path).contains("libc"));
    child.kill().unwrap();
    child.wait().unwrap();
    let Some(mut map) = libc_of_this else {
        eprintln!("skipped: linked without a shared libc");
        return;
    };
    map.open_path = format!("/proc/{}/root{}", child.id(), map.path);
    let address = libc::getpid as *const () as u64;
    let frames = Symbols::new().user(&process(vec![map]), address, true);
    assert!(frames.iter().any(|frame| frame.name.contains("getpid")), "{frames:?}");
}

#[test]
fn unnamed_addresses_are_shown_and_counted() {
    let mut symbols = Symbols::new();
    let this = process(vec![
        mapping(0x1000, 0x2000, 0x500, "/nowhere/program"),
        mapping(0x3000, 0x4000, 0, "[vdso]"),
        mapping(0x5000, 0x6000, 0, "/proc/self/exe (deleted)"),
    ]);
    let mut name = |address| symbols.user(&this, address, true)[0].name.clone();
    assert_eq!(name(0x1010), "[program+0x510]");
    assert_eq!(name(0x3010), "[vdso]");
    assert_eq!(name(0x5010), "[exe (deleted)+0x10]");
    assert_eq!(name(0x9000), "[unknown]");
    assert_eq!(name(0x9000), "[unknown]");
    let counts = UnknownFrames { user_asked: 4, user_unknown: 4, ..UnknownFrames::default() };
    assert_eq!(symbols.unknown(), counts);
}

#[test]
fn of_overlapping_mappings_the_later_counts() {
    let this = process(vec![
        mapping(0x1000, 0x2000, 0, "/nowhere/before-exec"),
        mapping(0x1000, 0x2000, 0, "/nowhere/after-exec"),
    ]);
    assert_eq!(Symbols::new().user(&this, 0x1000, true)[0].name, "[after-exec+0x0]");
}

#[test]
fn jit_functions_come_from_perf_map() {
    let mut symbols = Symbols::new();
    let this = process(vec![mapping(0x7000, 0x8000, 0, "")]);
    assert_eq!(symbols.user(&this, 0x7008, true)[0].name, "[unknown]");
    symbols.add_perf_map(
        this.pid,
        "7000 10 old\nnonsense\n0x7100 20 LazyCompile:*handle server.js:12\n\
         7000 10 new\u{1b}[31m\n",
    );
    assert_eq!(symbols.user(&this, 0x7008, true)[0].name, "new?[31m");
    let frame = symbols.user(&this, 0x7110, true)[0].clone();
    assert_eq!(frame.to_string(), "LazyCompile:*handle server.js:12 [jit]");
    assert_eq!(frame.size_bytes, Some(0x20));
    assert!(!symbols.user(&this, 0x7120, true)[0].known, "behind the function's end");
}

/// It is not asked about code that has a file.
#[test]
fn lying_perf_map_gives_at_most_wrong_names() {
    let mut symbols = Symbols::new();
    let this = process(vec![mapping(0x7000, 0x9000, 0, ""), mapping(0xa000, 0xb000, 0, "/bin/x")]);
    let endless = "x".repeat(1 << 20);
    let map = format!(
        "0 ffffffffffffffff all\n7000 ffffffffffffffff {endless}\n7100 0 empty\n\
         7200 10\n 7300 10 blank\nffffffffffffffff ffffffffffffffff last\n-7400 10 minus\n\
         a000 1000 file\n"
    );
    symbols.add_perf_map(this.pid, &map);
    let mut name = |address| symbols.user(&this, address, true)[0].name.clone();
    assert_eq!(name(0x7010).len(), 1_000);
    assert_eq!(name(0x7108), "[unknown]", "in a function of no bytes");
    assert_eq!(name(0xa010), "[x+0x10]");
}

#[test]
fn kernel_functions_reach_to_the_next() {
    let mut symbols = Symbols::new().with_kallsyms(KALLSYMS);
    let frame = symbols.kernel(0x1010, true)[0].clone();
    assert_eq!((frame.name.as_str(), frame.size_bytes), ("schedule", Some(0x200)));
    assert_eq!(symbols.kernel(0x1200, false)[0].name, "schedule", "a return address");
    assert_eq!(symbols.kernel(0x1200, true)[0].name, "do_epoll_wait");
    assert_eq!(symbols.kernel(0x1900, true)[0].to_string(), "nf_hook [nf_tables]");
    for nowhere in [0, 0xfff, 0x2000, u64::MAX] {
        assert!(!symbols.kernel(nowhere, true)[0].known, "{nowhere:#x}");
    }
    assert_eq!(symbols.unknown().kernel_unknown, 4);
}

#[test]
fn hidden_kernel_addresses_give_no_names() {
    let text = "0000000000000000 T schedule\n0000000000000000 T other\n";
    assert!(!Symbols::new().with_kallsyms(text).kernel(0x10, true)[0].known);
}

#[test]
fn one_letter_c_name_is_no_type() {
    // Of a C program without debug information nothing tells the language.
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("w.c"), directory.path().join("w.so"));
    fs::write(&source, "int w(void) { return 1; }\nint _ZN4work3oneEv(void) { return 2; }\n")
        .unwrap();
    let flags = ["-shared", "-nostdlib", "-o"];
    let built = Command::new("cc").args(flags).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    let bytes = fs::read(&library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let path = library.to_str().unwrap();
    let name_at = |name: &str| {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        let within = |segment: &object::Segment<'_, '_>| {
            (segment.address()..segment.address() + segment.size()).contains(&symbol.address())
        };
        let segment = file.segments().find(within).unwrap();
        let (offset, size) = segment.file_range();
        let this = process(vec![mapping(0x1000, 0x1000 + size, offset, path)]);
        let address = 0x1000 + symbol.address() - segment.address();
        Symbols::new().user(&this, address, true)[0].name.clone()
    };
    assert_eq!(name_at("w"), "w");
    assert_eq!(name_at("_ZN4work3oneEv"), "work::one()");
}
