package tidemill.siddhi;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.event.Event;
import io.siddhi.core.stream.output.StreamCallback;
import io.siddhi.core.util.config.InMemoryConfigManager;

import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * A source of Siddhi as subscriber: prints "ready", then every event of the channel app/out as its timestamp and its
 * values between bars, and ends after COUNT of them. Arguments: PORT COUNT.
 */
public final class Server {
    private Server() {
    }

    /** See the class. */
    public static void main(String[] argv) throws Exception {
        int count = Integer.parseInt(argv[1]);
        SiddhiManager manager = new SiddhiManager();
        manager.setConfigManager(new InMemoryConfigManager(
                Map.of("source.tcp.host", "127.0.0.1", "source.tcp.port", argv[0]), null));
        SiddhiAppRuntime app = manager.createSiddhiAppRuntime("@app:name('server') "
                + "@source(type='tcp', context='app/out', @map(type='binary')) "
                + "define stream received (n long, s string, i int, f float, d double, b bool);");
        app.addCallback("received", new StreamCallback() {
            private int seen;

            @Override
            public void receive(Event[] events) {
                StringBuilder lines = new StringBuilder();
                for (Event event : events) {
                    lines.append(event.getTimestamp()).append('|').append(
                            Arrays.stream(event.getData()).map(String::valueOf).collect(Collectors.joining("|"))).append('\n');
                }
                System.out.print(lines);
                System.out.flush();
                seen += events.length;
                if (seen >= count) {
                    Runtime.getRuntime().halt(0);
                }
            }
        });
        app.start();
        System.out.println("ready");
        System.out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }
}
