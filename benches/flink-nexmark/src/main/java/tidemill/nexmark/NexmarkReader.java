package tidemill.nexmark;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.table.data.RowData;

/** Makes the rows of its stripes, the stripe that lags most first. All methods are called by one thread. */
final class NexmarkReader implements SourceReader<RowData, Stripe> {
    /**
     * Rows a call. Between calls Flink looks whether there is something else to do, such as a checkpoint; 64 rows are made
     * in less than 0.1 ms.
     */
    private static final int ROWS_AT_ONCE = 64;

    private static final CompletableFuture<Void> NOW = CompletableFuture.completedFuture(null);

    private final Settings settings;
    private final Column[] columns;
    private final Model model;
    private final List<Part> parts = new ArrayList<>();
    private boolean noMoreSplits;
    private CompletableFuture<Void> available = NOW;
    /** When the first event is due by {@link System#nanoTime}, with a rate; set at the first row. */
    private long beginNs;

    private boolean begun;

    /** A stripe that is being read. */
    private final class Part {
        final Stripe stripe;
        final long end;
        final Cursor cursor = new Cursor(settings);
        long rank;
        /** Rows until the end of a chunk, after which the cursor must be set anew. */
        long left;

        SourceOutput<RowData> output;

        Part(Stripe stripe) {
            this.stripe = stripe;
            this.rank = stripe.rank;
            this.end = stripe.ownedBelow(settings.rows());
            seek();
        }

        private void seek() {
            cursor.seek(stripe.row(rank));
            left = stripe.of == 1 ? Long.MAX_VALUE : stripe.chunk - rank % stripe.chunk;
        }

        void emit(int rows) {
            for (int i = 0; i < rows; i++) {
                output.collect(model.row(columns, cursor));
                rank++;
                if (--left == 0) {
                    seek();
                } else {
                    cursor.next();
                }
            }
        }
    }

    NexmarkReader(Settings settings, Column[] columns) {
        this.settings = settings;
        this.columns = columns;
        this.model = new Model(settings);
    }

    @Override
    public void start() {}

    @Override
    public InputStatus pollNext(ReaderOutput<RowData> output) {
        Part part = mostBehind();
        if (part == null) {
            if (noMoreSplits) {
                return InputStatus.END_OF_INPUT;
            }
            available = new CompletableFuture<>();
            return InputStatus.NOTHING_AVAILABLE;
        }
        long rows = Math.min(part.end - part.rank, ROWS_AT_ONCE);
        if (settings.rateLimited && rows > 0) {
            rows = Math.min(rows, due(part));
            if (rows <= 0) {
                return InputStatus.NOTHING_AVAILABLE;
            }
        }
        if (part.output == null) {
            part.output = output.createOutputForSplit(part.stripe.splitId());
        }
        part.emit((int) rows);
        if (part.rank >= part.end) {
            output.releaseOutputForSplit(part.stripe.splitId());
            parts.remove(part);
        }
        return InputStatus.MORE_AVAILABLE;
    }

    private Part mostBehind() {
        Part found = null;
        for (Part part : parts) {
            if (found == null || part.cursor.number < found.cursor.number) {
                found = part;
            }
        }
        return found;
    }

    /** How many further rows of a stripe are due, which are at their event time; if none, sees to it that Flink asks again. */
    private long due(Part part) {
        long now = System.nanoTime();
        long nextMs = settings.rates.ms(part.cursor.number);
        if (!begun) {
            begun = true;
            beginNs = now - TimeUnit.MILLISECONDS.toNanos(nextMs);
        }
        long elapsedNs = now - beginNs;
        long due = part.stripe.ownedBelow(settings.rowsBelow(settings.rates.eventsBy(elapsedNs))) - part.rank;
        if (due <= 0) {
            long wait = nextMs - TimeUnit.NANOSECONDS.toMillis(elapsedNs);
            available = new CompletableFuture<Void>().completeOnTimeout(null, Math.max(wait, 1), TimeUnit.MILLISECONDS);
        }
        return due;
    }

    @Override
    public List<Stripe> snapshotState(long checkpoint) {
        List<Stripe> splits = new ArrayList<>();
        parts.forEach(part -> splits.add(part.stripe.at(part.rank)));
        return splits;
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
        return available.isDone() ? NOW : available;
    }

    @Override
    public void addSplits(List<Stripe> splits) {
        splits.forEach(stripe -> parts.add(new Part(stripe)));
        available.complete(null);
    }

    @Override
    public void notifyNoMoreSplits() {
        noMoreSplits = true;
        available.complete(null);
    }

    @Override
    public void close() {}
}
