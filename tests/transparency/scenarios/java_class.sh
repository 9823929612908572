# Java: compile and run a class with threads, files, a child process, an exception's status, a loopback socket.
# @needs java javac
# @timeout 120
cat > Main.java <<'END'
import java.io.*; import java.net.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*;
public class Main {
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4); List<Future<Integer>> futures = new ArrayList<>();
        for (int i = 0; i < 20; i++) { int n = i; futures.add(pool.submit(() -> {
            try (FileOutputStream f = new FileOutputStream("file" + n)) { f.write(("content " + n).getBytes()); f.getFD().sync(); }
            return (int) Files.size(Path.of("file" + n)); })); }
        int sum = 0; for (Future<Integer> f : futures) sum += f.get(); System.out.println("bytes " + sum); pool.shutdown();
        long hash = 0; for (int i = 0; i < 30_000_000; i++) hash = hash * 31 + i; System.out.println("hot loop " + hash);
        Process p = new ProcessBuilder("sh", "-c", "echo child; exit 3").redirectErrorStream(true).start();
        System.out.println(new String(p.getInputStream().readAllBytes()).trim() + " " + p.waitFor());
        ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
        Thread t = new Thread(() -> { try (Socket s = server.accept()) { s.getOutputStream().write("over loopback".getBytes()); } catch (IOException e) { throw new UncheckedIOException(e); } }); t.start();
        try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) { System.out.println(new String(s.getInputStream().readAllBytes())); } t.join();
        List<byte[]> garbage = new ArrayList<>(); for (int i = 0; i < 200; i++) { garbage.add(new byte[1 << 20]); if (i % 20 == 0) { garbage.clear(); System.gc(); } }
        Object o = null; try { o.toString(); } catch (NullPointerException e) { System.out.println("null pointer"); }
        if (args.length > 0) System.exit(7);
    }
}
END
javac Main.java && java -XX:-UsePerfData -Xmx256m Main; echo "status $?"; java -XX:-UsePerfData -Xmx256m Main x > /dev/null; echo "status $?"
