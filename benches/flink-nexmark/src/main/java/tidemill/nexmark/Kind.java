package tidemill.nexmark;

/** The kind of an event; a table has those of one kind, or all. */
enum Kind {
    PERSON,
    AUCTION,
    BID,
    ALL;

    /** As the option 'table' names it. */
    @Override
    public String toString() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }
}
