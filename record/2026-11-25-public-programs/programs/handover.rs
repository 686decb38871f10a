//! A server of short requests: one task reads them, another answers. One worker of four could do
//! it all. `handover REQUESTS`
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{channel, Receiver, Sender};

fn main() {
    let requests: u32 = std::env::args().nth(1).map_or(3_000, |n| n.parse().expect("requests"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let sum = runtime.block_on(async {
        let (ask, asked) = channel(1);
        let (answer, answers) = channel(1);
        tokio::spawn(handle(asked, answer));
        tokio::spawn(serve(tokio::net::UnixStream::from_std(server).unwrap(), ask, answers));
        let client = std::thread::spawn(move || {
            let mut sum = 0_u64;
            for n in 0..requests {
                let mut byte = [n as u8];
                client.write_all(&byte).unwrap();
                client.read_exact(&mut byte).unwrap();
                sum += u64::from(byte[0]);
                std::thread::sleep(Duration::from_micros(300));
            }
            sum
        });
        tokio::task::spawn_blocking(|| client.join().unwrap()).await.unwrap()
    });
    let of = runtime.metrics();
    let all = |count: fn(&tokio::runtime::RuntimeMetrics, usize) -> u64| {
        (0..of.num_workers()).map(|worker| count(&of, worker)).sum::<u64>()
    };
    let parks = all(|of, worker| of.worker_park_count(worker));
    let noops = all(|of, worker| of.worker_noop_count(worker));
    println!("truth: requests {requests}, sum {sum}, parks {parks}, for nothing {noops}");
}

async fn serve(mut socket: tokio::net::UnixStream, ask: Sender<u8>, mut answers: Receiver<u8>) {
    let mut byte = [0];
    while socket.read_exact(&mut byte).await.is_ok() {
        pass_on(&ask, byte[0]).await;
        byte[0] = answers.recv().await.unwrap();
        socket.write_all(&byte).await.unwrap();
    }
}

async fn handle(mut asked: Receiver<u8>, answer: Sender<u8>) {
    while let Some(byte) = asked.recv().await {
        pass_on(&answer, byte.wrapping_add(1)).await;
    }
}

#[inline(never)]
async fn pass_on(to: &Sender<u8>, byte: u8) {
    to.send(byte).await.unwrap();
}
