use unherd_cache::{Cache, OpenOptions};
fn ctx() -> u64 {
    let mut n = 0;
    for t in std::fs::read_dir("/proc/self/task").unwrap() {
        if let Ok(s) = std::fs::read_to_string(t.unwrap().path().join("status")) {
            for l in s.lines() {
                if l.starts_with("voluntary") {
                    n += l.split_whitespace().last().unwrap().parse::<u64>().unwrap();
                }
            }
        }
    }
    n
}
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let v: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (v[11].parse::<f64>().unwrap() + v[12].parse::<f64>().unwrap()) / 100.
}
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (mb, tail, rounds) = (a[0], a[1], a[2]);
    let cache = Cache::builder().capacity(256 << 20).build().unwrap();
    let f = cache.open("syn.dat", OpenOptions::new().write(true).create(true)).unwrap();
    let b = vec![7u8; 4096];
    let pages = mb * 256 + tail;
    let (mut t_sync, mut c_sync) = (0., 0);
    let c0 = cpu();
    for r in 0..rounds + 1 {
        if r == 1 {
            t_sync = 0.;
            c_sync = 0;
        }
        for p in 0..pages {
            f.write_all_at(&b, (p * 4096) as u64).unwrap();
        }
        let (t, c) = (std::time::Instant::now(), ctx());
        f.sync_all().unwrap();
        t_sync += t.elapsed().as_secs_f64();
        c_sync += ctx() - c;
    }
    println!(
        "{:.0} us a sync, {:.1} switches, cpu {:.2}",
        t_sync / rounds as f64 * 1e6,
        c_sync as f64 / rounds as f64,
        cpu() - c0
    );
}
