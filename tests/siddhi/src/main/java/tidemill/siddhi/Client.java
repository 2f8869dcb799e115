package tidemill.siddhi;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.input.InputHandler;

/**
 * Siddhi's sinks as publishers: COUNT events to each of two channels, app/all with every type that the wire has and
 * app/pairs, in frames of 1 to 64 events. Arguments: PORT COUNT.
 */
public final class Client {
    /** The timestamp of event 0, ms. */
    private static final long EPOCH = 1_700_000_000_000L;

    private Client() {
    }

    /** See the class. */
    public static void main(String[] argv) throws Exception {
        String sink = "@sink(type='tcp', url='tcp://127.0.0.1:" + argv[0] + "/%s', sync='true', @map(type='binary')) ";
        int count = Integer.parseInt(argv[1]);
        SiddhiAppRuntime app = new SiddhiManager().createSiddhiAppRuntime("@app:name('client') "
                + String.format(sink, "app/all")
                + "define stream everything (s string, i int, l long, f float, d double, b bool); "
                + String.format(sink, "app/pairs")
                + "define stream pairs (n long, s string);");
        app.start();
        InputHandler everything = app.getInputHandler("everything");
        InputHandler pairs = app.getInputHandler("pairs");
        int size = 1;
        for (int begin = 0; begin < count; begin += size) {
            size = Math.min(size % 64 + 1, count - begin);
            Event[] all = new Event[size];
            Event[] some = new Event[size];
            for (int k = 0; k < size; k++) {
                int i = begin + k;
                String s = i % 5 == 0 ? "" : "key-" + i;
                all[k] = new Event(EPOCH + i, new Object[]{s, i - 1000, i * 3_000_000_000L, i / 4f, i / 8.0, i % 2 == 0});
                some[k] = new Event(EPOCH + i, new Object[]{(long) i, "pair-" + i % 10});
            }
            everything.send(all);
            pairs.send(some);
        }
        app.shutdown();
        System.exit(0);
    }
}
