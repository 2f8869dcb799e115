package tidemill.siddhi;

import io.siddhi.core.event.Event;
import io.siddhi.extension.io.tcp.transport.TCPNettyClient;
import io.siddhi.extension.map.binary.sinkmapper.BinaryEventConverter;
import io.siddhi.query.api.definition.Attribute.Type;

import java.util.SplittableRandom;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;

/**
 * A paced publisher over Siddhi's TCP client, for measuring latency. Arguments: PORT KIND FRAME RATE WARM SECONDS.
 * KIND is simple, trades or game; FRAME events a frame; RATE events a second. It first sends for WARM seconds, at the
 * same pace and then as fast as it can, to the channel warm-up, which no table reads: so the client's own code is
 * compiled, and the job sees nothing of it. Then it sends to inputStream for SECONDS. The first value of each event is
 * System.nanoTime of the moment at which its frame was due, so that a client that falls behind counts as latency.
 */
public final class Load {
    /** Frames that wait in the client at most. */
    private static final int IN_FLIGHT = 64;
    /** Sensors of balls. */
    private static final int[] BALLS = {4, 8, 10, 12};

    private final TCPNettyClient client = new TCPNettyClient(1, true, true);
    private final Semaphore room = new Semaphore(IN_FLIGHT);
    private final SplittableRandom random = new SplittableRandom(42);
    private final String kind;
    private final int frame;
    private long tick = 10_629_342_490_369_879L;

    private Load(String kind, int frame) {
        this.kind = kind;
        this.frame = frame;
    }

    /** See the class. */
    public static void main(String[] argv) throws Exception {
        Load load = new Load(argv[1], Integer.parseInt(argv[2]));
        double rate = Double.parseDouble(argv[3]);
        double warm = Double.parseDouble(argv[4]);
        load.client.connect("127.0.0.1", Integer.parseInt(argv[0]));
        load.run("warm-up", 0, warm / 2);
        load.run("warm-up", rate, warm / 2);
        Thread.sleep(500);
        System.out.println(load.run("inputStream", rate, Double.parseDouble(argv[5])));
        System.out.flush();
        load.room.acquire(IN_FLIGHT);
        load.client.disconnect();
        load.client.shutdown();
        System.exit(0);
    }

    /** Sends for so many seconds; answers with the number of events. */
    private long run(String channel, double rate, double seconds) throws Exception {
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        double step = rate > 0 ? frame * 1e9 / rate : 0;
        for (long frames = 0; ; frames++) {
            long due = step > 0 ? await(begin + (long) (step * frames)) : System.nanoTime();
            if (due >= end || System.nanoTime() >= end) {
                return frames * frame;
            }
            long now = System.currentTimeMillis();
            Event[] events = new Event[frame];
            for (int k = 0; k < frame; k++) {
                events[k] = new Event(now, values(due));
            }
            byte[] bytes = BinaryEventConverter.convertToBinaryMessage(events, types()).array();
            room.acquire();
            client.send(channel, bytes).addListener(sent -> {
                room.release();
                if (!sent.isSuccess()) {
                    System.err.println("sending failed: " + sent.cause());
                    Runtime.getRuntime().halt(1);
                }
            });
        }
    }

    private static long await(long due) {
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            if (left > 100_000) {
                LockSupport.parkNanos(left - 60_000);
            } else {
                Thread.onSpinWait();
            }
        }
        return due;
    }

    private Type[] types() {
        switch (kind) {
            case "simple":
                return new Type[]{Type.LONG, Type.FLOAT};
            case "trades":
                return new Type[]{Type.LONG, Type.STRING, Type.FLOAT, Type.LONG};
            default:
                return new Type[]{Type.LONG, Type.INT, Type.LONG, Type.DOUBLE, Type.DOUBLE, Type.INT, Type.DOUBLE, Type.INT,
                    Type.INT, Type.INT, Type.INT, Type.INT, Type.INT, Type.INT};
        }
    }

    private Object[] values(long clock) {
        switch (kind) {
            case "simple":
                return new Object[]{clock, (float) random.nextDouble()};
            case "trades":
                int symbol = random.nextInt(100);
                return new Object[]{clock, "SYM" + symbol, 10f + symbol + (float) random.nextDouble(), 1L + random.nextInt(1000)};
            default:
                return position(clock);
        }
    }

    /** Of a hundred positions one is the first of a goal, of five hundred one the second. */
    private Object[] position(long clock) {
        double lot = random.nextDouble();
        boolean beside = lot < 0.01;
        boolean inside = !beside && lot < 0.012;
        boolean ball = beside || inside || random.nextBoolean();
        tick += 66_000_000L;
        return new Object[]{clock, ball ? BALLS[random.nextInt(4)] : 13 + random.nextInt(90), tick,
            beside ? 29_900.0 + random.nextInt(3000) : 22_600.0 + random.nextInt(7200),
            inside ? -33_968.0 - random.nextInt(500) : -33_000.0 + random.nextInt(66_000),
            random.nextInt(2400), random.nextDouble() * 1e7, inside ? 55_000 + random.nextInt(100_000) : random.nextInt(100_000),
            random.nextInt(10_000), random.nextInt(10_000), random.nextInt(10_000),
            random.nextInt(10_000), random.nextInt(10_000), random.nextInt(10_000)};
    }
}
