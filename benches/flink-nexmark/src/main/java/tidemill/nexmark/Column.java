package tidemill.nexmark;

import java.io.Serializable;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.table.types.logical.utils.LogicalTypeChecks;

/** A column by its name and type: which of the model's values it holds, in which form. */
final class Column implements Serializable {
    private static final long serialVersionUID = 1L;

    /** The values of events. */
    enum Value {
        EVENT_TYPE,
        DATE_TIME,
        ROW,
        PERSON_ID,
        NAME,
        EMAIL_ADDRESS,
        CREDIT_CARD,
        CITY,
        STATE,
        PERSON_EXTRA,
        AUCTION_ID,
        ITEM_NAME,
        DESCRIPTION,
        INITIAL_BID,
        RESERVE,
        EXPIRES,
        SELLER,
        CATEGORY,
        AUCTION_EXTRA,
        BID_AUCTION,
        BIDDER,
        PRICE,
        CHANNEL,
        URL,
        BID_EXTRA
    }

    /** How a value is stored. */
    enum Form {
        LONG,
        INT,
        TIMESTAMP,
        TIMESTAMP_SECONDS,
        TEXT,
        ROW
    }

    private static final Map<String, Value> PERSON =
            Map.of(
                    "id", Value.PERSON_ID,
                    "name", Value.NAME,
                    "emailaddress", Value.EMAIL_ADDRESS,
                    "creditcard", Value.CREDIT_CARD,
                    "city", Value.CITY,
                    "state", Value.STATE,
                    "datetime", Value.DATE_TIME,
                    "extra", Value.PERSON_EXTRA);
    private static final Map<String, Value> AUCTION =
            Map.of(
                    "id", Value.AUCTION_ID,
                    "itemname", Value.ITEM_NAME,
                    "description", Value.DESCRIPTION,
                    "initialbid", Value.INITIAL_BID,
                    "reserve", Value.RESERVE,
                    "datetime", Value.DATE_TIME,
                    "expires", Value.EXPIRES,
                    "seller", Value.SELLER,
                    "category", Value.CATEGORY,
                    "extra", Value.AUCTION_EXTRA);
    private static final Map<String, Value> BID =
            Map.of(
                    "auction", Value.BID_AUCTION,
                    "bidder", Value.BIDDER,
                    "price", Value.PRICE,
                    "channel", Value.CHANNEL,
                    "url", Value.URL,
                    "datetime", Value.DATE_TIME,
                    "extra", Value.BID_EXTRA);
    private static final Map<String, Value> ALL =
            Map.of(
                    "eventtype", Value.EVENT_TYPE,
                    "person", Value.ROW,
                    "auction", Value.ROW,
                    "bid", Value.ROW,
                    "datetime", Value.DATE_TIME);
    private static final Map<Kind, Map<String, Value>> NAMES =
            Map.of(Kind.PERSON, PERSON, Kind.AUCTION, AUCTION, Kind.BID, BID, Kind.ALL, ALL);

    final Value value;
    final Form form;
    /** Of which kind an event must be for the column to have a value; {@link Kind#ALL} unless it is a ROW. */
    final Kind kind;
    /** The columns of a ROW. */
    final Column[] nested;

    private Column(Value value, Form form, Kind kind, Column[] nested) {
        this.value = value;
        this.form = form;
        this.kind = kind;
        this.nested = nested;
    }

    /** The columns of a table with events of a kind; a {@link ValidationException} names one that the model has not. */
    static Column[] of(Kind kind, RowType type) {
        List<RowType.RowField> fields = type.getFields();
        Column[] columns = new Column[fields.size()];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = of(kind, fields.get(i));
        }
        return columns;
    }

    private static Column of(Kind kind, RowType.RowField field) {
        // As Flink's own examples write them, or with underscores.
        String name = field.getName().toLowerCase(Locale.ROOT).replace("_", "");
        Value value = NAMES.get(kind).get(name);
        if (value == Value.ROW && field.getType() instanceof RowType) {
            if (!field.getType().isNullable()) {
                throw new ValidationException(
                        "column '" + field.getName() + "' is NULL where the event is of another kind: it cannot be NOT NULL");
            }
            Kind own = Kind.valueOf(name.toUpperCase(Locale.ROOT));
            return new Column(value, Form.ROW, own, of(own, (RowType) field.getType()));
        }
        Form form = value == null ? null : form(value, field.getType());
        if (form == null) {
            throw new ValidationException(
                    "'table' = '" + kind + "' has no column '" + field.getName() + "' of type " + field.getType().asSummaryString()
                            + "; it has: " + String.join(", ", new TreeSet<>(NAMES.get(kind).keySet()))
                            + "; numbers are BIGINT or INT, texts STRING, times TIMESTAMP(3) or BIGINT");
        }
        return new Column(value, form, Kind.ALL, null);
    }

    /** The form of a value in a type; {@code null} if it does not fit. */
    private static Form form(Value value, LogicalType type) {
        LogicalTypeRoot root = type.getTypeRoot();
        switch (value) {
            case DATE_TIME:
            case EXPIRES:
                if (root == LogicalTypeRoot.BIGINT) {
                    return Form.LONG;
                }
                if (root == LogicalTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE || root == LogicalTypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE) {
                    int digits = LogicalTypeChecks.getPrecision(type);
                    return digits >= 3 ? Form.TIMESTAMP : digits == 0 ? Form.TIMESTAMP_SECONDS : null;
                }
                return null;
            case NAME:
            case EMAIL_ADDRESS:
            case CREDIT_CARD:
            case CITY:
            case STATE:
            case PERSON_EXTRA:
            case ITEM_NAME:
            case DESCRIPTION:
            case AUCTION_EXTRA:
            case CHANNEL:
            case URL:
            case BID_EXTRA:
                return root == LogicalTypeRoot.VARCHAR && ((VarCharType) type).getLength() == VarCharType.MAX_LENGTH ? Form.TEXT : null;
            case ROW:
                return null;
            default:
                return root == LogicalTypeRoot.BIGINT ? Form.LONG : root == LogicalTypeRoot.INTEGER ? Form.INT : null;
        }
    }
}
