// Work.java: the JVM: JIT code, threads, null checks by SIGSEGV, stack overflow, garbage, a child process.
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Work {
    static long compute(int rounds) {
        long value = 1;
        for (int i = 0; i < rounds; i++) {
            value = value * 6364136223846793005L + 1442695040888963407L;
        }
        return value;
    }

    static int dive(int depth) {
        return dive(depth + 1) + 1;
    }

    static int faults(int rounds) {
        int caught = 0;
        for (int i = 0; i < rounds; i++) {
            try {
                String nothing = i % 2 == 0 ? null : "x";
                caught += nothing.length() - 1;
            } catch (NullPointerException error) {
                caught++;
            }
        }
        return caught;
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println(System.getenv("UNSPOOL_SESSION") + " " + System.getenv("LD_PRELOAD"));
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < 24; i++) {
            results.add(pool.submit(() -> {
                List<byte[]> garbage = new ArrayList<>();
                for (int k = 0; k < 200; k++) {
                    garbage.add(new byte[4000]);
                }
                return compute(3000000) + garbage.size();
            }));
        }
        long sum = 0;
        for (Future<Long> result : results) {
            sum += result.get();
        }
        pool.shutdown();
        System.out.println(sum + " " + faults(200000));
        try {
            dive(0);
        } catch (StackOverflowError error) {
            System.out.println("overflow");
        }
        Process child = new ProcessBuilder("/bin/echo", "child").inheritIO().start();
        System.out.println(child.waitFor());
    }
}
