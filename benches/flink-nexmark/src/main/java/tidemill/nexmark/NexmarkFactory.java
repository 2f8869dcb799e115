package tidemill.nexmark;

import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** Flink finds the connector 'nexmark' here, by META-INF/services. */
public final class NexmarkFactory implements DynamicTableSourceFactory {
    static final String NAME = "nexmark";

    /** Called by Flink. */
    public NexmarkFactory() {}

    @Override
    public String factoryIdentifier() {
        return NAME;
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Settings.options();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        Settings settings = new Settings(helper.getOptions());
        DataType row = context.getPhysicalRowDataType();
        // All columns are looked at, of which a query may read but some.
        Column.of(settings.table, (RowType) row.getLogicalType());
        return new NexmarkTable(settings, row);
    }
}
