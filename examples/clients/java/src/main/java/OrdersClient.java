import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.arrow.flight.CallHeaders;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.FlightCallHeaders;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.HeaderCallOption;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.SyncPutListener;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Publishes orders and follows a view, over Arrow Flight.
 *
 * <pre>
 *   publish   grpc://HOST:PORT orders NAME ROWS     rows under a name: each is taken once, however often it is sent
 *   subscribe grpc://HOST:PORT per_customer         the contents of the view, then its changes
 * </pre>
 *
 * A token stands in the environment as TIDEMILL_TOKEN; for grpc+tls://, the certificates to trust in the file that
 * TIDEMILL_CA_FILE names.
 */
public final class OrdersClient {
    private static final int BLOCK_ROWS = 500;
    private static final String[] KINDS = {"+I", "-U", "+U", "-D"};
    private static final Schema ORDERS = new Schema(List.of(
            new Field("id", FieldType.notNullable(new ArrowType.Int(64, true)), null),
            Field.nullable("customer", ArrowType.Utf8.INSTANCE),
            Field.nullable("amount", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE))));

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            System.err.println("usage: publish SERVER STREAM NAME ROWS | subscribe SERVER STREAM");
            System.exit(2);
        }
        try (BufferAllocator allocator = new RootAllocator(); FlightClient client = connect(allocator, args[1])) {
            switch (args[0]) {
                case "publish" -> publish(allocator, client, args[2], args[3], Long.parseLong(args[4]));
                case "subscribe" -> subscribe(client, args[2]);
                default -> throw new IllegalArgumentException("publish or subscribe, not " + args[0]);
            }
        } catch (FlightRuntimeException | ExecutionException e) {
            Throwable refused = e instanceof ExecutionException ? e.getCause() : e;
            System.err.println("error: " + refused.getMessage());
            System.exit(1);
        }
    }

    private static FlightClient connect(BufferAllocator allocator, String server) throws Exception {
        FlightClient.Builder builder = FlightClient.builder(allocator, new Location(server));
        String certificates = System.getenv("TIDEMILL_CA_FILE");
        if (certificates != null) {
            builder.trustedCertificates(Files.newInputStream(Path.of(certificates)));
        }
        return builder.build();
    }

    private static CallOption token() {
        CallHeaders headers = new FlightCallHeaders();
        String token = System.getenv("TIDEMILL_TOKEN");
        if (token != null) {
            headers.insert("authorization", "Bearer " + token);
        }
        return new HeaderCallOption(headers);
    }

    /** From the row that the server wants next to the last one; returns when a checkpoint has made all of them safe. */
    private static void publish(BufferAllocator allocator, FlightClient client, String stream, String name, long total)
            throws Exception {
        FlightDescriptor descriptor = FlightDescriptor.path(stream, name);
        try (VectorSchemaRoot root = VectorSchemaRoot.create(ORDERS, allocator); SyncPutListener answers = new SyncPutListener()) {
            FlightClient.ClientStreamListener call = client.startPut(descriptor, root, answers, token());
            long row = number(answers.read(), "offset");
            System.out.println("from row " + row);
            while (row < total) {
                int count = (int) Math.min(BLOCK_ROWS, total - row);
                fill(root, row, count);
                byte[] note = ("{\"offset\":" + row + "}").getBytes(UTF_8);
                ArrowBuf metadata = allocator.buffer(note.length);
                metadata.writeBytes(note);
                while (!call.isReady()) {
                    Thread.sleep(1); // Else what the server does not take yet would gather here.
                }
                call.putNext(metadata);
                row += count;
            }
            call.completed();
            for (PutResult answer = answers.read(); answer != null; answer = answers.read()) {
                System.out.println("safe: " + number(answer, "acknowledged"));
            }
            answers.getResult();
        }
    }

    /** Rows first, first + 1, …: a row is the same whenever it is asked for. */
    private static void fill(VectorSchemaRoot root, long first, int count) {
        root.allocateNew();
        BigIntVector id = (BigIntVector) root.getVector("id");
        VarCharVector customer = (VarCharVector) root.getVector("customer");
        Float8Vector amount = (Float8Vector) root.getVector("amount");
        for (int i = 0; i < count; i++) {
            long n = first + i;
            id.setSafe(i, n);
            customer.setSafe(i, ("customer " + n % 7).getBytes(UTF_8));
            amount.setSafe(i, n % 200);
        }
        root.setRowCount(count);
    }

    /** The number of that name in an answer, which is a flat object of JSON. */
    private static long number(PutResult answer, String name) {
        try (answer) {
            ArrowBuf metadata = answer.getApplicationMetadata();
            byte[] bytes = new byte[(int) metadata.readableBytes()];
            metadata.getBytes(metadata.readerIndex(), bytes);
            Matcher found = Pattern.compile('"' + name + "\":\\s*(\\d+)").matcher(new String(bytes, UTF_8));
            if (!found.find()) {
                throw new IllegalStateException("no " + name + " in " + new String(bytes, UTF_8));
            }
            return Long.parseLong(found.group(1));
        }
    }

    private static void subscribe(FlightClient client, String stream) throws Exception {
        String request = "{\"stream\":\"" + stream + "\",\"from\":\"snapshot\"}";
        try (FlightStream rows = client.getStream(new Ticket(request.getBytes(UTF_8)), token())) {
            while (rows.next()) {
                VectorSchemaRoot block = rows.getRoot();
                TinyIntVector kinds = (TinyIntVector) block.getVector("row_kind");
                for (int i = 0; i < block.getRowCount(); i++) {
                    StringBuilder line = new StringBuilder(kinds == null ? "+I" : KINDS[kinds.get(i)]);
                    for (FieldVector column : block.getFieldVectors()) {
                        if (column != kinds) {
                            line.append(' ').append(column.getName()).append('=').append(column.getObject(i));
                        }
                    }
                    System.out.println(line);
                }
            }
        }
    }
}
