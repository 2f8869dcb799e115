package tidemill.nexmark;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/**
 * The source: a stripe of the rows for each reader. A checkpoint holds how many rows of each stripe were made, from which
 * they are continued exactly, at another parallelism, too.
 */
final class NexmarkSource implements Source<RowData, Stripe, Collection<Stripe>> {
    private static final long serialVersionUID = 1L;

    /** Rows in a chunk, if there are several stripes and no rate that asks for less. */
    private static final long CHUNK_ROWS_MAX = 1024;
    /** With a rate, a chunk is at most a hundredth of a second of rows, so that no stripe lags behind in event time. */
    private static final long CHUNKS_PER_SECOND = 100;

    private static final long SECOND_NS = 1_000_000_000L;

    private final Settings settings;
    private final Column[] columns;

    NexmarkSource(Settings settings, Column[] columns) {
        this.settings = settings;
        this.columns = columns;
    }

    @Override
    public Boundedness getBoundedness() {
        return settings.events > 0 ? Boundedness.BOUNDED : Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<RowData, Stripe> createReader(SourceReaderContext context) {
        return new NexmarkReader(settings, columns);
    }

    @Override
    public SplitEnumerator<Stripe, Collection<Stripe>> createEnumerator(SplitEnumeratorContext<Stripe> context) {
        int of = context.currentParallelism();
        long chunk = CHUNK_ROWS_MAX;
        if (settings.rateLimited) {
            long perSecond = settings.rowsBelow(settings.rates.eventsBy(SECOND_NS)) - 1;
            chunk = Math.min(Math.max(perSecond / CHUNKS_PER_SECOND, 1), CHUNK_ROWS_MAX);
        }
        List<Stripe> stripes = new ArrayList<>();
        for (int index = 0; index < of; index++) {
            stripes.add(new Stripe(index, of, chunk, 0));
        }
        return new Enumerator(context, stripes);
    }

    @Override
    public SplitEnumerator<Stripe, Collection<Stripe>> restoreEnumerator(
            SplitEnumeratorContext<Stripe> context, Collection<Stripe> unassigned) {
        return new Enumerator(context, unassigned);
    }

    @Override
    public SimpleVersionedSerializer<Stripe> getSplitSerializer() {
        return new Stripe.One();
    }

    @Override
    public SimpleVersionedSerializer<Collection<Stripe>> getEnumeratorCheckpointSerializer() {
        return new Stripe.Many();
    }

    /** Gives every reader its stripes as soon as it is there. */
    private static final class Enumerator implements SplitEnumerator<Stripe, Collection<Stripe>> {
        private final SplitEnumeratorContext<Stripe> context;
        private final List<Stripe> unassigned;

        Enumerator(SplitEnumeratorContext<Stripe> context, Collection<Stripe> unassigned) {
            this.context = context;
            this.unassigned = new ArrayList<>(unassigned);
        }

        @Override
        public void start() {}

        @Override
        public void addReader(int reader) {
            Iterator<Stripe> all = unassigned.iterator();
            while (all.hasNext()) {
                Stripe stripe = all.next();
                if (stripe.index % context.currentParallelism() == reader) {
                    context.assignSplit(stripe, reader);
                    all.remove();
                }
            }
            context.signalNoMoreSplits(reader);
        }

        @Override
        public void addSplitsBack(List<Stripe> splits, int reader) {
            // The reader failed; it comes again by addReader.
            unassigned.addAll(splits);
        }

        @Override
        public void handleSplitRequest(int reader, String host) {
            // Readers do not ask: they are told all at once.
        }

        @Override
        public Collection<Stripe> snapshotState(long checkpoint) {
            return new ArrayList<>(unassigned);
        }

        @Override
        public void close() {}
    }
}
