package tidemill.nexmark;

import java.io.Serializable;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeParseException;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.api.ValidationException;

/**
 * The options of the connector and their validation: names, defaults and bounds are those of
 * crates/connect/src/nexmark/options.rs, which documents them.
 */
final class Settings implements Serializable {
    private static final long serialVersionUID = 1L;

    private static final ConfigOption<Kind> TABLE = ConfigOptions.key("table").enumType(Kind.class).defaultValue(Kind.ALL);
    private static final ConfigOption<Long> EVENTS = ConfigOptions.key("events.num").longType().defaultValue(0L);
    private static final ConfigOption<Long> FIRST_RATE = ConfigOptions.key("first-event.rate").longType().defaultValue(10_000L);
    private static final ConfigOption<Long> NEXT_RATE = ConfigOptions.key("next-event.rate").longType().noDefaultValue();
    private static final ConfigOption<Duration> RATE_PERIOD =
            ConfigOptions.key("rate.period").durationType().defaultValue(Duration.ofSeconds(600));
    private static final ConfigOption<Boolean> RATE_LIMITED = ConfigOptions.key("rate.limited").booleanType().defaultValue(false);
    private static final ConfigOption<Long> PERSONS = ConfigOptions.key("person.proportion").longType().defaultValue(1L);
    private static final ConfigOption<Long> AUCTIONS = ConfigOptions.key("auction.proportion").longType().defaultValue(3L);
    private static final ConfigOption<Long> BIDS = ConfigOptions.key("bid.proportion").longType().defaultValue(46L);
    private static final ConfigOption<Long> HOT_AUCTIONS = ConfigOptions.key("bid.hot-ratio.auctions").longType().defaultValue(2L);
    private static final ConfigOption<Long> HOT_BIDDERS = ConfigOptions.key("bid.hot-ratio.bidders").longType().defaultValue(4L);
    private static final ConfigOption<Long> HOT_SELLERS = ConfigOptions.key("auction.hot-ratio.sellers").longType().defaultValue(4L);
    private static final ConfigOption<MemorySize> PERSON_SIZE =
            ConfigOptions.key("person.avg-size").memoryType().defaultValue(new MemorySize(200));
    private static final ConfigOption<MemorySize> AUCTION_SIZE =
            ConfigOptions.key("auction.avg-size").memoryType().defaultValue(new MemorySize(500));
    private static final ConfigOption<MemorySize> BID_SIZE =
            ConfigOptions.key("bid.avg-size").memoryType().defaultValue(new MemorySize(100));
    private static final ConfigOption<Long> IN_FLIGHT = ConfigOptions.key("auctions.in-flight").longType().defaultValue(100L);
    private static final ConfigOption<Long> ACTIVE_PEOPLE = ConfigOptions.key("people.active").longType().defaultValue(1000L);
    private static final ConfigOption<Duration> DISORDER =
            ConfigOptions.key("out-of-order.max-delay").durationType().defaultValue(Duration.ZERO);
    private static final ConfigOption<String> BASE_TIME =
            ConfigOptions.key("base-time").stringType().defaultValue("2015-07-15 00:00:00");
    private static final ConfigOption<String> SEED = ConfigOptions.key("seed").stringType().defaultValue("42");

    /** The most events: at 10^6 a second they last for 285 years, and all arithmetic stays within 63 bits. */
    static final long EVENTS_MAX = 1L << 53;
    /** The most events a second. */
    private static final long RATE_MAX = 1_000_000_000L;
    /** The largest share, ratio and count of what is active. */
    private static final long COUNT_MAX = 1_000_000L;
    /** The largest average size, bytes. */
    private static final long SIZE_MAX = 1L << 20;
    /** The longest period of the rates, and the longest delay. */
    private static final Duration DURATION_MAX = Duration.ofDays(366);

    final Kind table;
    /** Events of all kinds together; 0 for no end. */
    final long events;

    final Rates rates;
    final boolean rateLimited;
    final long persons;
    final long auctions;
    final long bids;
    final long hotAuctions;
    final long hotBidders;
    final long hotSellers;
    final long personSize;
    final long auctionSize;
    final long bidSize;
    final long inFlight;
    final long activePeople;
    final long disorderMs;
    final long baseMs;
    final long seed;

    /** All options of the connector. */
    static Set<ConfigOption<?>> options() {
        Set<ConfigOption<?>> all = new LinkedHashSet<>();
        all.add(TABLE);
        all.add(EVENTS);
        all.add(FIRST_RATE);
        all.add(NEXT_RATE);
        all.add(RATE_PERIOD);
        all.add(RATE_LIMITED);
        all.add(PERSONS);
        all.add(AUCTIONS);
        all.add(BIDS);
        all.add(HOT_AUCTIONS);
        all.add(HOT_BIDDERS);
        all.add(HOT_SELLERS);
        all.add(PERSON_SIZE);
        all.add(AUCTION_SIZE);
        all.add(BID_SIZE);
        all.add(IN_FLIGHT);
        all.add(ACTIVE_PEOPLE);
        all.add(DISORDER);
        all.add(BASE_TIME);
        all.add(SEED);
        return all;
    }

    /** Reads and checks the options; a {@link ValidationException} names the option that is out of its range. */
    Settings(ReadableConfig given) {
        table = given.get(TABLE);
        events = between(EVENTS, given.get(EVENTS), 0, EVENTS_MAX);
        long first = between(FIRST_RATE, given.get(FIRST_RATE), 1, RATE_MAX);
        long next = between(NEXT_RATE, given.getOptional(NEXT_RATE).orElse(first), 1, RATE_MAX);
        long halfS = given.get(RATE_PERIOD).getSeconds() / 2;
        if (halfS == 0 || given.get(RATE_PERIOD).compareTo(DURATION_MAX) > 0) {
            throw wrong(RATE_PERIOD, given.get(RATE_PERIOD), "expected from 2 s to 366 d");
        }
        rates = new Rates(first, next, halfS);
        rateLimited = given.get(RATE_LIMITED);
        persons = count(PERSONS, given);
        auctions = count(AUCTIONS, given);
        bids = count(BIDS, given);
        hotAuctions = count(HOT_AUCTIONS, given);
        hotBidders = count(HOT_BIDDERS, given);
        hotSellers = count(HOT_SELLERS, given);
        personSize = between(PERSON_SIZE, given.get(PERSON_SIZE).getBytes(), 0, SIZE_MAX);
        auctionSize = between(AUCTION_SIZE, given.get(AUCTION_SIZE).getBytes(), 0, SIZE_MAX);
        bidSize = between(BID_SIZE, given.get(BID_SIZE).getBytes(), 0, SIZE_MAX);
        inFlight = count(IN_FLIGHT, given);
        activePeople = count(ACTIVE_PEOPLE, given);
        if (given.get(DISORDER).compareTo(DURATION_MAX) > 0) {
            throw wrong(DISORDER, given.get(DISORDER), "expected at most 366 d");
        }
        disorderMs = given.get(DISORDER).toMillis();
        baseMs = time(given.get(BASE_TIME));
        try {
            seed = Long.parseUnsignedLong(given.get(SEED).trim());
        } catch (NumberFormatException e) {
            throw wrong(SEED, given.get(SEED), "expected a whole number from 0 to 2^64 - 1");
        }
    }

    private static long count(ConfigOption<Long> option, ReadableConfig given) {
        return between(option, given.get(option), 1, COUNT_MAX);
    }

    private static long between(ConfigOption<?> option, long value, long least, long most) {
        if (value < least || value > most) {
            throw wrong(option, value, "expected a whole number from " + least + " to " + most);
        }
        return value;
    }

    private static long time(String text) {
        String iso = text.trim().replace(' ', 'T').replaceFirst("Z$", "");
        try {
            LocalDateTime time = LocalDateTime.parse(iso.contains("T") ? iso : iso + "T00:00:00");
            return time.toInstant(ZoneOffset.UTC).toEpochMilli();
        } catch (DateTimeParseException e) {
            throw wrong(BASE_TIME, text, "expected a timestamp such as '2015-07-15 00:00:00'");
        }
    }

    private static ValidationException wrong(ConfigOption<?> option, Object value, String why) {
        return new ValidationException("option '" + option.key() + "' = '" + value + "': " + why);
    }

    /** Events in a round: of each round the first are persons, then come auctions, then bids. */
    long round() {
        return persons + auctions + bids;
    }

    /** How many events of each round are rows of the table. */
    long share() {
        return Map.of(Kind.PERSON, persons, Kind.AUCTION, auctions, Kind.BID, bids, Kind.ALL, round()).get(table);
    }

    /** The place in the round of the first of them. */
    long skip() {
        return Map.of(Kind.PERSON, 0L, Kind.AUCTION, persons, Kind.BID, persons + auctions, Kind.ALL, 0L).get(table);
    }

    /** How many rows of the table there are among the first {@code events} events. */
    long rowsBelow(long events) {
        return events / round() * share() + Math.min(Math.max(events % round() - skip(), 0), share());
    }

    /** How many rows the table has; without an end as many as there can be. */
    long rows() {
        return rowsBelow(events == 0 ? EVENTS_MAX : events);
    }
}
