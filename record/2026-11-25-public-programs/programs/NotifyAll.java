// Waiters of which one finds a token each time: java NotifyAll.java WAITERS TOKENS
public class NotifyAll {
    static final Object lock = new Object();
    static int tokens, waiting, taken;
    static long woken, needless;
    static boolean over;

    static void take() throws InterruptedException {
        synchronized (lock) {
            while (true) {
                boolean slept = false;
                while (tokens == 0 && !over) {
                    if (slept) needless++;
                    waiting++;
                    lock.wait();
                    waiting--;
                    woken++;
                    slept = true;
                }
                if (tokens == 0) return;
                tokens--;
                taken++;
            }
        }
    }

    public static void main(String[] args) throws Exception {
        int waiters = args.length > 0 ? Integer.parseInt(args[0]) : 8;
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 500;
        Thread[] all = new Thread[waiters];
        for (int n = 0; n < waiters; n++) {
            all[n] = new Thread(() -> {
                try { take(); } catch (InterruptedException e) { throw new RuntimeException(e); }
            }, "taker-" + n);
            all[n].start();
        }
        for (int n = 0; n < rounds; n++) {
            untilAllWait(waiters, n);
            put();
        }
        untilAllWait(waiters, rounds);
        synchronized (lock) { over = true; lock.notifyAll(); }
        for (Thread one : all) one.join();
        System.out.println("truth: woken " + woken + ", needless " + needless + ", taken " + taken);
    }

    // All that were woken before have looked and wait again: only then is the next a herd of all.
    static void untilAllWait(int waiters, long before) throws InterruptedException {
        while (true) {
            synchronized (lock) { if (waiting == waiters && woken == before * waiters) return; }
            Thread.sleep(1);
        }
    }

    static void put() {
        synchronized (lock) {
            tokens++;
            lock.notifyAll();
        }
    }
}
