package tidemill.nexmark;

import static tidemill.nexmark.Numbers.at;
import static tidemill.nexmark.Numbers.below;

import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryStringData;

/**
 * The model: persons who open auctions and bid in them, as functions of the event's number. A port of
 * crates/connect/src/nexmark/model.rs, which explains it; every value is the same to the last bit.
 */
final class Model {
    private static final long FIRST_ID = 1_000;
    private static final long FIRST_CATEGORY = 10;
    private static final long CATEGORIES = 5;
    /** One auction or person in so many is hot while it is new. */
    private static final long HOT_EVERY = 100;
    /** Bids and auctions name auctions and persons that come up to so many ids later. */
    private static final long LEAD = 10;

    private static final int PRICE_STEPS = 1024;
    private static final double PRICE_STEP_LN = 6.0 * 2.302585092994045684 / PRICE_STEPS;
    private static final double PRICE_MIN = 100.0;

    /** Sizes of what a record has besides the column extra, bytes. */
    private static final long PERSON_BYTES = 75;

    private static final long AUCTION_BYTES = 124;
    private static final long BID_BYTES = 32;

    private static final int ITEM_BYTES_MAX = 20;
    private static final int DESCRIPTION_BYTES_MAX = 100;

    /** The model's streams, in place of a column's index. */
    private static final long COLUMN = -2;

    /** What a stream of random numbers is for, in the order of the original. */
    private enum Purpose {
        NAME,
        EMAIL,
        CARD,
        CITY,
        STATE,
        PERSON_EXTRA,
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
        BID_EXTRA,
        DISORDER,
        LETTERS,
        URLS
    }

    private final long name;
    private final long email;
    private final long card;
    private final long city;
    private final long state;
    private final long personExtra;
    private final long itemName;
    private final long description;
    private final long initialBid;
    private final long reserve;
    private final long expires;
    private final long seller;
    private final long category;
    private final long auctionExtra;
    private final long bidAuction;
    private final long bidder;
    private final long price;
    private final long channel;
    private final long bidExtra;
    private final long disorder;

    private final long persons;
    private final long auctions;
    private final long hotAuctions;
    private final long hotBidders;
    private final long hotSellers;
    private final long inFlight;
    private final long activePeople;
    private final Rates rates;
    private final long baseMs;
    private final long disorderMs;
    /** Events until so many more auctions have been opened as are in flight. */
    private final long flightEvents;
    /** Cents at each step. */
    private final double[] prices = new double[PRICE_STEPS];

    private final Texts texts;
    /** The average length of the column extra, bytes. */
    private final int personPadding;

    private final int auctionPadding;
    private final int bidPadding;

    Model(Settings of) {
        persons = of.persons;
        auctions = of.auctions;
        hotAuctions = of.hotAuctions;
        hotBidders = of.hotBidders;
        hotSellers = of.hotSellers;
        inFlight = of.inFlight;
        activePeople = of.activePeople;
        rates = of.rates;
        baseMs = of.baseMs;
        disorderMs = of.disorderMs;
        flightEvents = inFlight * of.round() / auctions;
        prices[0] = PRICE_MIN;
        for (int step = 1; step < PRICE_STEPS; step++) {
            prices[step] = prices[step - 1] * grown(PRICE_STEP_LN);
        }
        personPadding = (int) Math.max(of.personSize - PERSON_BYTES, 0);
        auctionPadding = (int) Math.max(of.auctionSize - AUCTION_BYTES, 0);
        bidPadding = (int) Math.max(of.bidSize - BID_BYTES, 0);
        int largest = Math.max(personPadding, Math.max(auctionPadding, bidPadding));
        long[] streams = new long[Purpose.values().length];
        for (int purpose = 0; purpose < streams.length; purpose++) {
            streams[purpose] = Numbers.stream(of.seed, COLUMN, purpose);
        }
        texts = new Texts(streams[Purpose.LETTERS.ordinal()], streams[Purpose.URLS.ordinal()], largest + largest / 5);
        name = streams[Purpose.NAME.ordinal()];
        email = streams[Purpose.EMAIL.ordinal()];
        card = streams[Purpose.CARD.ordinal()];
        city = streams[Purpose.CITY.ordinal()];
        state = streams[Purpose.STATE.ordinal()];
        personExtra = streams[Purpose.PERSON_EXTRA.ordinal()];
        itemName = streams[Purpose.ITEM_NAME.ordinal()];
        description = streams[Purpose.DESCRIPTION.ordinal()];
        initialBid = streams[Purpose.INITIAL_BID.ordinal()];
        reserve = streams[Purpose.RESERVE.ordinal()];
        expires = streams[Purpose.EXPIRES.ordinal()];
        seller = streams[Purpose.SELLER.ordinal()];
        category = streams[Purpose.CATEGORY.ordinal()];
        auctionExtra = streams[Purpose.AUCTION_EXTRA.ordinal()];
        bidAuction = streams[Purpose.BID_AUCTION.ordinal()];
        bidder = streams[Purpose.BIDDER.ordinal()];
        price = streams[Purpose.PRICE.ordinal()];
        channel = streams[Purpose.CHANNEL.ordinal()];
        bidExtra = streams[Purpose.BID_EXTRA.ordinal()];
        disorder = streams[Purpose.DISORDER.ordinal()];
    }

    /** The row of an event. */
    GenericRowData row(Column[] columns, Cursor event) {
        GenericRowData row = new GenericRowData(columns.length);
        for (int i = 0; i < columns.length; i++) {
            row.setField(i, field(columns[i], event));
        }
        return row;
    }

    private Object field(Column column, Cursor event) {
        switch (column.form) {
            case LONG:
                return number(column.value, event);
            case INT:
                return (int) number(column.value, event);
            case TIMESTAMP:
                return TimestampData.fromEpochMillis(number(column.value, event));
            case TIMESTAMP_SECONDS:
                return TimestampData.fromEpochMillis(Math.floorDiv(number(column.value, event), 1_000L) * 1_000);
            case TEXT:
                return text(column.value, event.number);
            default:
                return column.kind == kind(event) ? row(column.nested, event) : null;
        }
    }

    private long number(Column.Value value, Cursor event) {
        long n = event.number;
        switch (value) {
            case EVENT_TYPE:
                return kind(event).ordinal();
            case DATE_TIME:
                return time(event);
            case PERSON_ID:
                return FIRST_ID + newestPerson(event);
            case AUCTION_ID:
                return FIRST_ID + newestAuction(event);
            case INITIAL_BID:
                return price(at(initialBid, n));
            case RESERVE:
                return price(at(initialBid, n)) + price(at(reserve, n));
            case EXPIRES:
                return expires(event);
            case SELLER:
                return person(at(seller, n), hotSellers, 0, event);
            case CATEGORY:
                return FIRST_CATEGORY + below(at(category, n), CATEGORIES);
            case BID_AUCTION:
                return bidAuction(at(bidAuction, n), event);
            case BIDDER:
                return person(at(bidder, n), hotBidders, 1, event);
            case PRICE:
                return price(at(price, n));
            default:
                throw new IllegalStateException(value + " is no number");
        }
    }

    private BinaryStringData text(Column.Value value, long n) {
        switch (value) {
            case NAME:
                return texts.name(at(name, n));
            case EMAIL_ADDRESS:
                return texts.email(at(email, n));
            case CREDIT_CARD:
                return Texts.card(at(card, n));
            case CITY:
                return Texts.city(at(city, n));
            case STATE:
                return Texts.state(at(state, n));
            case PERSON_EXTRA:
                return padding(at(personExtra, n), personPadding);
            case ITEM_NAME:
                return texts.between(at(itemName, n), 3, ITEM_BYTES_MAX);
            case DESCRIPTION:
                return texts.between(at(description, n), 3, DESCRIPTION_BYTES_MAX);
            case AUCTION_EXTRA:
                return padding(at(auctionExtra, n), auctionPadding);
            case CHANNEL:
                return texts.channel(at(channel, n));
            case URL:
                return texts.url(at(channel, n));
            case BID_EXTRA:
                return padding(at(bidExtra, n), bidPadding);
            default:
                throw new IllegalStateException(value + " is no text");
        }
    }

    /** Letters of an average length, a fifth more or less. */
    private BinaryStringData padding(long x, int average) {
        return texts.between(x, average - average / 5, average + average / 5);
    }

    private Kind kind(Cursor event) {
        return event.place < persons ? Kind.PERSON : event.place < persons + auctions ? Kind.AUCTION : Kind.BID;
    }

    /** The newest person at an event, counted from 0; the event's own if it is a person. */
    private long newestPerson(Cursor event) {
        return event.round * persons + Math.min(event.place, persons - 1);
    }

    /** The newest auction at an auction or bid, counted from 0. */
    private long newestAuction(Cursor event) {
        return event.round * auctions + Math.min(event.place - persons, auctions - 1);
    }

    /** The seller of an auction or the bidder of a bid; the hot one is {@code hotAt} in its hundred. */
    private long person(long x, long hotRatio, long hotAt, Cursor event) {
        long newest = newestPerson(event);
        if (isHot(x, hotRatio)) {
            return FIRST_ID + newest / HOT_EVERY * HOT_EVERY + hotAt;
        }
        long people = newest + 1;
        long active = Math.min(people, activePeople);
        return FIRST_ID + people - active + below(x, active + LEAD);
    }

    /** The auction that a bid is for. */
    private long bidAuction(long x, Cursor event) {
        long newest = newestAuction(event);
        if (isHot(x, hotAuctions)) {
            return FIRST_ID + newest / HOT_EVERY * HOT_EVERY;
        }
        long oldest = Math.max(newest - inFlight, 0);
        return FIRST_ID + oldest + below(x, newest - oldest + 1 + LEAD);
    }

    /** A price, cents: a dollar times ten to the power of an even number from 0 to 6. */
    private long price(long x) {
        double beyond = (x & ((1L << 54) - 1)) * (1.0 / (1L << 54));
        return (long) (prices[(int) (x >>> 54)] * grown(beyond * PRICE_STEP_LN) + 0.5);
    }

    /** The time of an event, ms since 1970. */
    private long time(Cursor event) {
        long ms = baseMs + event.ms();
        return disorderMs == 0 ? ms : ms - below(at(disorder, event.number), disorderMs + 1);
    }

    /** When an auction ends, ms since 1970: after as many further auctions as are in flight, on the average. */
    private long expires(Cursor event) {
        long most = Math.max((rates.ms(event.number + flightEvents) - event.ms()) * 2, 1);
        return time(event) + 1 + below(at(expires, event.number), most);
    }

    /** Whether a choice falls on the hot one, which it does but once in {@code ratio}. */
    private static boolean isHot(long x, long ratio) {
        return below(x << 32, ratio) > 0;
    }

    /** e to the power of {@code y}, for small {@code y}: the same operations in the same order as in the original. */
    private static double grown(double y) {
        return 1.0 + y * (1.0 + y * (1.0 / 2.0 + y * (1.0 / 6.0 + y * (1.0 / 24.0 + y * (1.0 / 120.0)))));
    }
}
