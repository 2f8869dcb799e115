package tidemill.nexmark;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSource;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/**
 * The table: makes only the columns that a query reads, and lets Flink compute the watermarks of the table's declaration
 * within the source, a stripe for itself, as Flink's own connector for Kafka does.
 */
final class NexmarkTable implements ScanTableSource, SupportsProjectionPushDown, SupportsWatermarkPushDown {
    private final Settings settings;
    private DataType produced;
    private WatermarkStrategy<RowData> watermarks = WatermarkStrategy.noWatermarks();

    NexmarkTable(Settings settings, DataType produced) {
        this.settings = settings;
        this.produced = produced;
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return ChangelogMode.insertOnly();
    }

    @Override
    public boolean supportsNestedProjection() {
        return false;
    }

    @Override
    public void applyProjection(int[][] fields, DataType produced) {
        this.produced = produced;
    }

    @Override
    public void applyWatermark(WatermarkStrategy<RowData> strategy) {
        watermarks = strategy;
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        Column[] columns = Column.of(settings.table, (RowType) produced.getLogicalType());
        TypeInformation<RowData> type = context.createTypeInformation(produced);
        WatermarkStrategy<RowData> strategy = watermarks;
        return new DataStreamScanProvider() {
            @Override
            public DataStream<RowData> produceDataStream(ProviderContext provider, StreamExecutionEnvironment environment) {
                // Under this name Flink's metrics count what the source has emitted: 0.Source__bid.numRecordsOut.
                DataStreamSource<RowData> source =
                        environment.fromSource(new NexmarkSource(settings, columns), strategy, settings.table.toString(), type);
                provider.generateUid(NexmarkFactory.NAME).ifPresent(source::uid);
                return source;
            }

            @Override
            public boolean isBounded() {
                return settings.events > 0;
            }
        };
    }

    @Override
    public DynamicTableSource copy() {
        NexmarkTable copy = new NexmarkTable(settings, produced);
        copy.watermarks = watermarks;
        return copy;
    }

    @Override
    public String asSummaryString() {
        return NexmarkFactory.NAME + " " + settings.table;
    }
}
