"""The table of E2: 113 columns, those of SAS's sample PRDSALE with 50 numbers and 50 texts of up to 1,000 characters, and what all
engines compute of it. Also a SAS file made larger."""

import struct

# The columns by what is computed of them; jobs/e2-make.sql makes them, jobs/e2-read.sql computes the same.
WHOLE = ["id", "quarter", "year"] + [f"n{i:02}" for i in range(26, 51)]
NUMBERS = ["actual", "predict"] + [f"n{i:02}" for i in range(1, 26)]
TEXTS = ["country", "state", "county", "region", "division", "prodtype", "product"] + [f"t{i:02}" for i in range(1, 51)]
DATES = ["month"]
COLUMNS = len(WHOLE) + len(NUMBERS) + len(TEXTS) + len(DATES)
assert COLUMNS == 113

# The longest text that XPORT has in the version that all programs read.
XPORT_TEXT = 200


def short():
    """What is selected for XPORT: all columns, texts cut."""
    cut = [f"SUBSTRING({name}, 1, {XPORT_TEXT}) AS {name}" for name in TEXTS[7:]]
    return ", ".join(f"`{name}`" for name in WHOLE + NUMBERS + DATES + TEXTS[:7]) + ", " + ", ".join(cut)


def grown(source, target, megabytes):
    """Writes a SAS7BDAT file again with its data pages many times, until it has so many MB; gives its rows. The file must be
    one of 32 bits, little-endian and not compressed, such as SASHELP.PRDSALE among the test data of pandas."""
    with open(source, "rb") as file:
        data = file.read()
    shift = 4 if data[35] == 0x33 else 0
    if data[32] == 0x33 or data[37] != 1:
        raise RuntimeError(f"{source} is not of 32 bits and little-endian")
    header, page, pages = struct.unpack_from("<3I", data, 196 + shift)
    starts = [header + i * page for i in range(pages)]
    # The head of a page: 16 bytes, its type, how many blocks, how many subheaders; behind it where those are.
    heads = [struct.unpack_from("<3H", data, at + 16) for at in starts]
    full = max(blocks for kind, blocks, _ in heads[1:] if kind == 256)
    whole = [at for at, (kind, blocks, _) in zip(starts, heads) if kind == 256 and blocks == full]
    rows_at = None
    for number in range(heads[0][2]):
        at, length = struct.unpack_from("<2I", data, header + 24 + 12 * number)
        if length >= 28 and struct.unpack_from("<I", data, header + at)[0] == 0xF7F7F7F7:
            rows_at = header + at + 24
    if not whole or rows_at is None:
        raise RuntimeError(f"{source} has no pages of data, or is compressed")
    piece = b"".join(data[at:at + page] for at in whole)
    times = max(1, int(megabytes * 1e6 / len(piece)))
    rows = struct.unpack_from("<I", data, rows_at)[0] + times * len(whole) * full
    head = bytearray(data)
    struct.pack_into("<I", head, 204 + shift, pages + times * len(whole))
    struct.pack_into("<I", head, rows_at, rows)
    with open(target, "wb") as file:
        file.write(head)
        for _ in range(times):
            file.write(piece)
    return rows
