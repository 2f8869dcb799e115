package tidemill.nexmark;

/** The events that are rows of a table, one by one: no division an event. */
final class Cursor {
    /** The number of the event. */
    long number;
    /** The round, and the place in it. */
    long round;

    long place;

    private final Rates rates;
    private final long share;
    private final long skip;
    private final long roundEvents;
    /** From the last row of a round to the first of the next, events. */
    private final long gap;
    /** Whether {@link #ms} and {@link #rest} are carried along; with two rates the time is computed anew. */
    private final boolean even;
    /** ms since the first event, and the remainder of that division. */
    private long ms;

    private long rest;
    private final long stepMs;
    private final long stepRest;
    private final long gapMs;
    private final long gapRest;

    Cursor(Settings settings) {
        rates = settings.rates;
        share = settings.share();
        skip = settings.skip();
        roundEvents = settings.round();
        gap = roundEvents - share + 1;
        even = rates.even();
        stepMs = 1_000 / rates.first;
        stepRest = 1_000 % rates.first;
        gapMs = gap * 1_000 / rates.first;
        gapRest = gap * 1_000 % rates.first;
    }

    /** Goes to the event that is this row of the table. */
    void seek(long row) {
        round = row / share;
        place = skip + row % share;
        number = round * roundEvents + place;
        ms = rates.ms(number);
        rest = number * 1_000 % rates.first;
    }

    /** Goes to the next row's event. */
    void next() {
        place++;
        if (place < skip + share) {
            number++;
            ms += stepMs;
            rest += stepRest;
        } else {
            place = skip;
            number += gap;
            round++;
            ms += gapMs;
            rest += gapRest;
        }
        if (rest >= rates.first) {
            rest -= rates.first;
            ms++;
        }
    }

    /** The time of the event, ms after the first event of all. */
    long ms() {
        return even ? ms : rates.ms(number);
    }
}
