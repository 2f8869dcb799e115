package tidemill.nexmark;

import static tidemill.nexmark.Numbers.at;
import static tidemill.nexmark.Numbers.below;

import java.nio.charset.StandardCharsets;
import org.apache.flink.core.memory.MemorySegment;
import org.apache.flink.core.memory.MemorySegmentFactory;
import org.apache.flink.table.data.binary.BinaryStringData;

/**
 * Texts, as crates/connect/src/nexmark/text.rs makes them: names, random letters, the channels of bids. Letters are views
 * of a pool, of names, cities and channels there is a table: a text costs one object at most, and no copy.
 */
final class Texts {
    /** Letters to begin at; a power of two. */
    private static final int POOL = 1 << 16;
    /** The longest text besides the column extra, bytes. */
    private static final int TEXT_BYTES_MAX = 128;
    /** The channels that few know: so many, and one in ten has no number in its address. */
    private static final int COLD = 10_000;

    private static final long WITHOUT_ID = 10;
    /** The channels that everybody knows; half of the bids come through them. */
    private static final String[] HOT = {"Google", "Facebook", "Baidu", "Apple"};

    private static final String[] FIRST_NAMES = {
        "Anna", "Boris", "Carla", "David", "Elena", "Farid", "Grace", "Hugo", "Irene", "Jonas", "Keiko", "Luis"
    };
    private static final String[] LAST_NAMES = {
        "Abbott", "Berger", "Costa", "Dubois", "Ekman", "Fischer", "Garcia", "Horvat", "Ito", "Jansen"
    };
    private static final BinaryStringData[] STATES = all("OR", "ID", "CA", "WA", "AZ", "WY");
    private static final BinaryStringData[] CITIES =
            all(
                    "Portland",
                    "Salem",
                    "Boise",
                    "Nampa",
                    "Los Angeles",
                    "San Francisco",
                    "Seattle",
                    "Spokane",
                    "Phoenix",
                    "Tucson",
                    "Cheyenne",
                    "Casper");

    private final byte[] letters;
    private final MemorySegment[] pool;
    private final BinaryStringData[] names = new BinaryStringData[FIRST_NAMES.length * LAST_NAMES.length];
    private final BinaryStringData[] channels = new BinaryStringData[COLD + HOT.length];
    private final BinaryStringData[] urls = new BinaryStringData[COLD + HOT.length];

    /** A pool from which texts of up to {@code longest} letters can be taken, and the channels. */
    Texts(long letterStream, long urlStream, int longest) {
        int words = (POOL + Math.max(longest, TEXT_BYTES_MAX) + 7) / 8;
        letters = new byte[words * 8];
        for (int word = 0; word < words; word++) {
            long x = at(letterStream, word);
            for (int i = 0; i < 8; i++) {
                letters[word * 8 + i] = (byte) ('a' + (((x >>> (8 * i) & 0xFF) * 26) >> 8));
            }
        }
        pool = new MemorySegment[] {MemorySegmentFactory.wrap(letters)};
        for (int i = 0; i < names.length; i++) {
            names[i] = text(FIRST_NAMES[i / LAST_NAMES.length] + " " + LAST_NAMES[i % LAST_NAMES.length]);
        }
        for (int channel = 0; channel < channels.length; channel++) {
            long x = at(urlStream, channel);
            boolean cold = channel < COLD;
            channels[channel] = text(cold ? "channel-" + channel : HOT[channel - COLD]);
            StringBuilder url = new StringBuilder("https://www.nexmark.com/");
            for (int part = 0; part < 3; part++) {
                url.append(take(x >>> (16 * part), 5)).append('/');
            }
            url.append("item.htm?query=1");
            if (cold && below(x, WITHOUT_ID) > 0) {
                url.append("&channel_id=").append(x >>> 33);
            }
            urls[channel] = text(url.toString());
        }
    }

    private static BinaryStringData[] all(String... texts) {
        BinaryStringData[] made = new BinaryStringData[texts.length];
        for (int i = 0; i < texts.length; i++) {
            made[i] = text(texts[i]);
        }
        return made;
    }

    /** A text by its bytes alone, as it would come from a file or a network. */
    private static BinaryStringData text(String text) {
        return BinaryStringData.fromBytes(text.getBytes(StandardCharsets.US_ASCII));
    }

    private static int begin(long x) {
        return (int) x & (POOL - 1);
    }

    /** {@code length} letters, chosen by the lower 16 bits of {@code x}. */
    BinaryStringData take(long x, int length) {
        return BinaryStringData.fromAddress(pool, begin(x), length);
    }

    /** From {@code least} to {@code most} letters; the length depends on the upper bits of {@code x}. */
    BinaryStringData between(long x, int least, int most) {
        return take(x, least + (int) below(x, most - least + 1));
    }

    /** A person's name. */
    BinaryStringData name(long x) {
        long first = below(x, FIRST_NAMES.length);
        return names[(int) (first * LAST_NAMES.length + below(x << 32, LAST_NAMES.length))];
    }

    /** An address for mail. */
    BinaryStringData email(long x) {
        byte[] text = new byte[17];
        System.arraycopy(letters, begin(x), text, 0, 7);
        text[7] = '@';
        System.arraycopy(letters, begin(x >>> 32), text, 8, 5);
        text[13] = '.';
        text[14] = 'c';
        text[15] = 'o';
        text[16] = 'm';
        return BinaryStringData.fromBytes(text);
    }

    /** The number of a credit card: four groups of four digits. */
    static BinaryStringData card(long x) {
        byte[] text = new byte[19];
        for (int group = 0; group < 4; group++) {
            int digits = (int) below(x << (16 * group), 10_000);
            int at = group * 5;
            for (int i = 3; i >= 0; i--) {
                text[at + i] = (byte) ('0' + digits % 10);
                digits /= 10;
            }
            if (group > 0) {
                text[at - 1] = ' ';
            }
        }
        return BinaryStringData.fromBytes(text);
    }

    /** A city. */
    static BinaryStringData city(long x) {
        return CITIES[(int) below(x, CITIES.length)];
    }

    /** A state. */
    static BinaryStringData state(long x) {
        return STATES[(int) below(x, STATES.length)];
    }

    private static int choose(long x) {
        return (int) ((x & 1) == 0 ? COLD + (x >>> 62) : below(x, COLD));
    }

    /** The name of the channel that a random number chooses. */
    BinaryStringData channel(long x) {
        return channels[choose(x)];
    }

    /** The address of that channel. */
    BinaryStringData url(long x) {
        return urls[choose(x)];
    }
}
