package tidemill.nexmark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * A split: of all chunks of {@code chunk} rows every {@code of}-th, beginning with {@code index}, of which {@code rank} rows
 * have been made. The same as in crates/connect/src/datagen/counter.rs.
 */
final class Stripe implements SourceSplit {
    /** Bytes of a stripe in a checkpoint: its four numbers. */
    private static final int BYTES = 4 * Long.BYTES;

    private static final int VERSION = 1;

    final long index;
    final long of;
    final long chunk;
    final long rank;

    Stripe(long index, long of, long chunk, long rank) {
        this.index = index;
        this.of = of;
        this.chunk = chunk;
        this.rank = rank;
    }

    /** The same stripe after so many rows. */
    Stripe at(long rank) {
        return new Stripe(index, of, chunk, rank);
    }

    /** How many rows below {@code row} the stripe owns. */
    long ownedBelow(long row) {
        if (of == 1) {
            return row;
        }
        long period = chunk * of;
        return row / period * chunk + Math.min(Math.max(row % period - index * chunk, 0), chunk);
    }

    /** The row that comes after {@code rank} other rows of the stripe. */
    long row(long rank) {
        return of == 1 ? rank : (rank / chunk * of + index) * chunk + rank % chunk;
    }

    @Override
    public String splitId() {
        return "stripe " + index + "/" + of + "x" + chunk;
    }

    @Override
    public String toString() {
        return splitId() + " at row " + rank;
    }

    private void write(ByteBuffer to) {
        to.putLong(index).putLong(of).putLong(chunk).putLong(rank);
    }

    private static Stripe read(ByteBuffer from) {
        return new Stripe(from.getLong(), from.getLong(), from.getLong(), from.getLong());
    }

    private static ByteBuffer checked(int version, byte[] bytes) throws IOException {
        if (version != VERSION || bytes.length % BYTES != 0) {
            throw new IOException(
                    "a checkpoint of nexmark has splits of version " + version + " in " + bytes.length + " bytes; expected version "
                            + VERSION + " and a multiple of " + BYTES);
        }
        return ByteBuffer.wrap(bytes);
    }

    /** Writes a reader's splits. */
    static final class One implements SimpleVersionedSerializer<Stripe> {
        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(Stripe stripe) {
            ByteBuffer bytes = ByteBuffer.allocate(BYTES);
            stripe.write(bytes);
            return bytes.array();
        }

        @Override
        public Stripe deserialize(int version, byte[] bytes) throws IOException {
            return read(checked(version, bytes));
        }
    }

    /** Writes the splits that no reader has yet. */
    static final class Many implements SimpleVersionedSerializer<Collection<Stripe>> {
        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(Collection<Stripe> stripes) {
            ByteBuffer bytes = ByteBuffer.allocate(stripes.size() * BYTES);
            stripes.forEach(stripe -> stripe.write(bytes));
            return bytes.array();
        }

        @Override
        public Collection<Stripe> deserialize(int version, byte[] bytes) throws IOException {
            ByteBuffer from = checked(version, bytes);
            List<Stripe> stripes = new ArrayList<>();
            while (from.hasRemaining()) {
                stripes.add(read(from));
            }
            return stripes;
        }
    }
}
