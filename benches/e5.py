#!/usr/bin/env python3
"""Experiment E5, and what belongs to it, measured on this machine. Python's standard library only.

  cargo build --release -p tidemill
  benches/e5.py remote     lookups on a server that answers after 1 to 200 ms (also without a word)
  benches/e5.py store      a count for each unique key of 100 bytes, more state than memory; against Samza
  benches/e5.py cpu        a count for each of a million keys, in memory
  benches/e5.py kafka      messages of 100 bytes read into columns and raw, and written; against Kafka's own tools
  benches/e5.py restart    restarts from 10 GB of state, and how long its checkpoints stop the flow
  benches/e5.py PART --help

Environment:

  TIDEMILL         the program; by default what cargo has built
  KAFKA_PEER       a directory with kafka.sh, which starts a broker on loopback and makes topics: for kafka, and store
                   without --datagen
  SAMZA_PEER       a directory with samza.sh, which runs Samza's counter against that broker (built already); without it
                   only ours
  PEERS_DIR        where both keep their programs and data, which needs some 15 GB for 50 million messages

Every cell is a fresh process, rounds go over all cells in turn; a table of medians with ranges goes to standard output and
to benches/runs/DATE/e5-PART.md. The exit code is 1 if a cell failed, whatever it measured: bars are told as "holds" or "FAILS".
The parts are modules in e5/, beside the jobs that they run.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "e5"))

import cpu  # noqa: E402
import kafka  # noqa: E402
import remote  # noqa: E402
import restart  # noqa: E402
import store  # noqa: E402

PARTS = {"remote": remote, "store": store, "cpu": cpu, "kafka": kafka, "restart": restart}


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in [*PARTS, "-h", "--help"]:
        arguments.insert(0, "remote")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="e5.py", description=__doc__, formatter_class=shape)
    parts = parser.add_subparsers(dest="part", metavar="PART")
    for name, part in PARTS.items():
        part.options(parts.add_parser(name, help=part.__doc__.split("\n")[0], description=part.__doc__, formatter_class=shape))
    a = parser.parse_args(arguments)
    try:
        PARTS[a.part].main(a)
    except RuntimeError as e:  # what comes before the cells: a topic that cannot be filled, a state that cannot be made
        sys.exit(f"e5.py: {e}")


if __name__ == "__main__":
    main()
