package tidemill.nexmark;

import java.io.Serializable;

/**
 * When events happen: one rate, or two that take turns. The arithmetic of crates/connect/src/nexmark/rates.rs; event
 * numbers are at most {@link Settings#EVENTS_MAX}, for which it stays within 63 bits.
 */
final class Rates implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final long NS = 1_000_000_000L;

    /** Events a second, in turns; both from 1 to 10^9. */
    final long first;

    private final long next;
    /** Half of the period in which they take turns, seconds. */
    private final long halfS;

    Rates(long first, long next, long halfS) {
        this.first = first;
        this.next = next;
        this.halfS = halfS;
    }

    /** Whether there is but one rate. */
    boolean even() {
        return first == next;
    }

    /** When an event happens, ms after the first event, rounded down. */
    long ms(long event) {
        if (first == next) {
            return event * 1_000 / first;
        }
        long fore = first * halfS;
        long period = event / (fore + next * halfS);
        long rest = event % (fore + next * halfS);
        long begin = period * (2 * halfS) * 1_000;
        return begin + (rest < fore ? rest * 1_000 / first : halfS * 1_000 + (rest - fore) * 1_000 / next);
    }

    /** How many events lie at or before {@code ns} after the first event. */
    long eventsBy(long ns) {
        if (first == next) {
            return counted(ns, first);
        }
        long fore = first * halfS;
        long back = next * halfS;
        long period = ns / (2 * halfS * NS);
        long rest = ns % (2 * halfS * NS);
        long within =
                rest < halfS * NS ? Math.min(counted(rest, first), fore) : fore + Math.min(counted(rest - halfS * NS, next), back);
        return period * (fore + back) + within;
    }

    /** Events at one rate, the first at 0, at or before {@code ns}: whole seconds apart, so that nothing overflows. */
    private static long counted(long ns, long rate) {
        return ns / NS * rate + ((ns % NS + 1) * rate - 1) / NS + 1;
    }
}
