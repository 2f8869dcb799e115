package tidemill.nexmark;

/**
 * Random numbers by position, as crates/connect/src/datagen/counter.rs makes them: the number of an event is a hash of
 * the event's number. The hash is that of wyrand (Wang Yi, 2020), the seeds are spread by SplitMix64. All longs are
 * unsigned 64-bit numbers.
 */
final class Numbers {
    /** 2^64 divided by the golden ratio, odd. */
    private static final long GOLDEN = 0x9E37_79B9_7F4A_7C15L;
    /** The increment of the Weyl sequence, and the bits flipped. */
    private static final long WEYL = 0xA076_1D64_78BD_642FL;

    private static final long FLIP = 0xE703_7ED1_A0B4_28DBL;

    private Numbers() {}

    private static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xBF58_476D_1CE4_E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D0_49BB_1331_11EBL;
        return z ^ (z >>> 31);
    }

    /** The stream of a column for one purpose: what {@link #at} takes. */
    static long stream(long seed, long column, long purpose) {
        return mix(mix(mix(seed + GOLDEN) + column) + purpose * GOLDEN);
    }

    /** The number of a stream at an index, uniform over all 64 bits. */
    static long at(long stream, long index) {
        long state = stream + index * WEYL;
        long flipped = state ^ FLIP;
        return high(state, flipped) ^ (state * flipped);
    }

    /** A number below {@code span}, which is positive, from a uniform {@code x}, by multiplication (Lemire, 2019). */
    static long below(long x, long span) {
        return Math.multiplyHigh(x, span) + ((x >> 63) & span);
    }

    /** The upper half of the product of two unsigned numbers; Java has it as one call only since 18. */
    private static long high(long a, long b) {
        return Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a);
    }
}
