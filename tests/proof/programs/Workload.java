/** A JVM with compiled, interpreted and native code on its stacks, its compilers and its collector at work. */
public class Workload {
    static final Object lock = new Object();

    static int fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    static void compute() {
        while (true)
            fibonacci(20);
    }

    static void allocate() {
        while (true)
            String.join(",", java.util.Collections.nCopies(1000, "text")).split(",");
    }

    static void waitForLock() {
        synchronized (lock) {
            fibonacci(1);
        }
    }

    static void sleep() {
        try {
            Thread.sleep(1000000);
        } catch (InterruptedException interrupted) {
            throw new RuntimeException(interrupted);
        }
    }

    public static void main(String[] arguments) throws Exception {
        synchronized (lock) {
            Runnable[] work = {Workload::compute, Workload::allocate, Workload::waitForLock, Workload::sleep};
            for (Runnable each : work) {
                Thread thread = new Thread(each);
                thread.setDaemon(true);
                thread.start();
            }
            Thread.sleep(1500);
            System.out.println("ready");
            Thread.sleep(1000000);
        }
    }
}
