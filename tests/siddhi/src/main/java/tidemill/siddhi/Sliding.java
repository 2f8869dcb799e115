package tidemill.siddhi;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.input.InputHandler;
import io.siddhi.core.stream.output.StreamCallback;

import java.util.Locale;
import java.util.SplittableRandom;

/**
 * Sliding average, least, greatest and count over #window.time(1 sec), in process, as fast as one thread sends. Arguments:
 * WARM SECONDS EVENTS…, the last being events a send, each measured in turn. It first sends for WARM seconds over all of
 * them, so that the code is compiled and the window full. Prints a line for each: events a send, events per second.
 */
public final class Sliding {
    private static final String APP = """
            define stream inputStream (n long, v long);
            from inputStream#window.time(1 sec)
            select n, avg(v) as a, min(v) as low, max(v) as high, count() as c
            insert into outputStream;
            """;

    private final InputHandler input;
    private final SplittableRandom random = new SplittableRandom(42);
    private long sent;
    /** Events that came out: written by the thread that sends. */
    private long received;

    private Sliding() {
        SiddhiAppRuntime app = new SiddhiManager().createSiddhiAppRuntime(APP);
        app.addCallback("outputStream", new StreamCallback() {
            @Override
            public void receive(Event[] events) {
                received += events.length;
            }
        });
        input = app.getInputHandler("inputStream");
        app.start();
    }

    /** See the class. */
    public static void main(String[] argv) throws Exception {
        double warm = Double.parseDouble(argv[0]);
        double seconds = Double.parseDouble(argv[1]);
        Sliding sliding = new Sliding();
        for (int at = 2; at < argv.length; at++) {
            sliding.send(Integer.parseInt(argv[at]), warm / (argv.length - 2));
        }
        for (int at = 2; at < argv.length; at++) {
            int events = Integer.parseInt(argv[at]);
            sliding.send(events, 1.5);
            long before = sliding.received;
            double rate = sliding.send(events, seconds);
            if (sliding.received == before) {
                throw new IllegalStateException("no event came out of the window");
            }
            System.out.printf(Locale.ROOT, "%d %.0f%n", events, rate);
        }
        System.out.flush();
        // A full window makes an orderly end slow.
        Runtime.getRuntime().halt(0);
    }

    /** Sends so many events at once for so long; answers with events per second. */
    private double send(int events, double seconds) throws Exception {
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        long first = sent;
        while (System.nanoTime() < end) {
            long now = System.currentTimeMillis();
            if (events == 1) {
                input.send(event(now));
            } else {
                Event[] block = new Event[events];
                for (int at = 0; at < events; at++) {
                    block[at] = event(now);
                }
                input.send(block);
            }
        }
        return (sent - first) / ((System.nanoTime() - begin) / 1e9);
    }

    private Event event(long now) {
        return new Event(now, new Object[] {sent++, random.nextLong(1_000_001)});
    }
}
