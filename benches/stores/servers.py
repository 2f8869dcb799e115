"""The databases that are measured, each on files of its own below a directory: how it is started, how its own client loads
a file of CSV, updates an event at a time and a thousand at a time. Settings are those of the installation; `about` says
the version and those that decide on safety and memory."""

import glob
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time

COLUMNS = ["event_id", "event_time", "host", "process", "process_id", "owner", "state", "cpu", "memory", "message"]
EVENTS = "process_events"
STATES = "process_states"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def as_user(name, command):
    """The command as another user, if we are root, which the servers refuse to run as."""
    return ["runuser", "-u", name, "--", *command] if os.geteuid() == 0 else command


def call(command, **how):
    done = subprocess.run(command, stdin=how.pop("stdin", subprocess.DEVNULL), capture_output=True, text=True, **how)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])} …: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def statements(rows, each, head, tail):
    """Rows of CSV as INSERT statements of `each` rows, with literals."""
    for start in range(0, len(rows), each):
        values = ("(" + ",".join(v if i in (0, 4, 7, 8) else quoted(v) for i, v in enumerate(row)) + ")" for row in rows[start:start + each])
        yield f"{head} VALUES {','.join(values)} {tail};\n"


class Sqlite:
    name = "SQLite"

    def __init__(self, work):
        if not shutil.which("sqlite3"):
            raise FileNotFoundError("the program sqlite3")
        # A file a table, so that one can be emptied and its size be told.
        self.files = {table: os.path.join(work, f"{table}.db") for table in (EVENTS, STATES)}
        version = call(["sqlite3", "--version"]).split()[0]
        self.about = f"{version} (its program), synchronous = FULL; a write-ahead log in our jobs, the journal that it begins with in .import"

    def values(self, table):
        """What our jobs need to find a table."""
        return {"URL": f"jdbc:sqlite:{self.files[table]}"}

    def _open(self, table):
        return sqlite3.connect(self.files[table], isolation_level=None)

    def execute(self, sql, table):
        connection = self._open(table)
        answer = connection.execute(sql).fetchall()
        connection.close()
        return answer

    def empty(self, table):
        """A file as new, with the table."""
        created = self.execute(f"SELECT sql FROM sqlite_master WHERE name = '{table}'", table)[0][0]
        for file in glob.glob(self.files[table] + "*"):
            os.remove(file)
        self.execute(created, table)

    def bulk(self, file, table):
        call(["sqlite3", self.files[table], ".mode csv", f".import {file} {table}"])

    def singly(self, rows, seconds):
        """Updates a second, each by a prepared statement in a transaction of its own."""
        connection = self._open(STATES)
        sql = f"UPDATE {STATES} SET {', '.join(c + ' = ?' for c in COLUMNS[1:])} WHERE event_id = ?"
        begun, done = time.monotonic(), 0
        while done < len(rows) and time.monotonic() - begun < seconds:
            connection.execute(sql, [*rows[done][1:], rows[done][0]])
            done += 1
        took = time.monotonic() - begun
        connection.close()
        return done / took

    def thousands(self, rows):
        connection = self._open(STATES)
        sets = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS[1:])
        begun = time.monotonic()
        for start in range(0, len(rows), 1000):
            some = rows[start:start + 1000]
            marks = ",".join(["(" + ",".join("?" * len(COLUMNS)) + ")"] * len(some))
            sql = f"INSERT INTO {STATES} ({', '.join(COLUMNS)}) VALUES {marks} ON CONFLICT (event_id) DO UPDATE SET {sets}"
            connection.execute(sql, [value for row in some for value in row])
        took = time.monotonic() - begun
        connection.close()
        return len(rows) / took

    def bytes(self, table):
        return sum(os.path.getsize(f) for f in glob.glob(self.files[table] + "*"))

    def stop(self):
        pass


class Postgres:
    name = "PostgreSQL"

    def __init__(self, work):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
        if not found:
            raise FileNotFoundError("Debian's package postgresql")
        self.bin = os.path.dirname(found[-1])
        self.home = os.path.join(work, "postgres")
        os.mkdir(self.home)
        if os.geteuid() == 0:
            shutil.chown(self.home, "postgres")
        self.port, self.data = free_port(), os.path.join(self.home, "data")
        self._server("initdb", "-D", self.data, "-A", "trust", "-U", "postgres")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        # Its output must not go to our pipes, which it would keep open.
        start = as_user("postgres", [f"{self.bin}/pg_ctl", "-D", self.data, "-l", f"{self.home}/log", "-o", options, "-w", "start"])
        subprocess.run(start, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.home)
        self.client = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        names = ("server_version", "fsync", "synchronous_commit", "wal_level", "max_wal_size", "shared_buffers")
        version, *rest = (self.execute(f"SHOW {name}")[0][0] for name in names)
        self.about = version + "".join(f", {name} = {value}" for name, value in zip(names[1:], rest))

    def values(self, _table):
        """What our jobs need to find a table."""
        return {"URL": f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?ssl-mode=disable", "USERNAME": "postgres"}

    def _server(self, program, *arguments):
        return call(as_user("postgres", [f"{self.bin}/{program}", *arguments]), cwd=self.home)

    def _psql(self, *arguments):
        return call([f"{self.bin}/psql", *self.client, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *arguments, "postgres"])

    def execute(self, sql, _table=None):
        return [tuple(line.split("|")) for line in self._psql("-c", sql).splitlines()]

    def empty(self, table):
        self.execute(f"TRUNCATE {table}")
        self.execute("CHECKPOINT")

    def bulk(self, file, table):
        self._psql("-c", f"\\copy {table} FROM '{file}' WITH (FORMAT csv)")

    def singly(self, rows, seconds):
        script = os.path.join(self.home, "update.pgbench")
        with open(script, "w") as out:
            _, at, host, process, _, owner, state, _, _, message = rows[0]
            out.write(f"\\set id random(0, {max(int(row[0]) for row in rows)})\n\\set p random(1, 65535)\n\\set m random(0, 68719476736)\n")
            texts = {"event_time": at, "host": host, "process": process, "owner": owner, "state": state, "message": message}
            sets = ", ".join(f"{name} = {quoted(value)}" for name, value in texts.items())
            out.write(f"UPDATE {STATES} SET {sets}, process_id = :p, cpu = :p / 700.0, memory = :m WHERE event_id = :id;\n")
        said = call([f"{self.bin}/pgbench", *self.client, "-n", "-M", "prepared", "-c", "1", "-T", str(int(seconds)), "-f", script, "postgres"])
        return float(re.search(r"tps = ([\d.]+)", said).group(1))

    def thousands(self, rows):
        # A key that is there twice in a statement is an error.
        rows = list({row[0]: row for row in rows}.values())
        sets = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS[1:])
        file = os.path.join(self.home, "thousands.sql")
        with open(file, "w") as out:
            out.writelines(statements(rows, 1000, f"INSERT INTO {STATES} ({', '.join(COLUMNS)})", f"ON CONFLICT (event_id) DO UPDATE SET {sets}"))
        begun = time.monotonic()
        self._psql("-f", file)
        return len(rows) / (time.monotonic() - begun)

    def bytes(self, table):
        return int(self.execute(f"SELECT pg_total_relation_size('{table}')")[0][0])

    def stop(self):
        self._server("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")


class MariaDb:
    name = "MariaDB"

    def __init__(self, work):
        program, install = shutil.which("mariadbd") or "/usr/sbin/mariadbd", shutil.which("mariadb-install-db")
        self.mariadb = shutil.which("mariadb")
        if not (os.path.exists(program) and install and self.mariadb):
            raise FileNotFoundError("Debian's package mariadb-server")
        self.home = os.path.join(work, "mariadb")
        os.mkdir(self.home)
        self.port, self.data = free_port(), os.path.join(self.home, "data")
        user = ["--user=root"] if os.geteuid() == 0 else []
        # Else a server that starts removes the temporary tables of others.
        temporary = os.path.join(self.home, "tmp")
        os.mkdir(temporary)
        environment = {**os.environ, "TMPDIR": temporary}
        call([install, "--no-defaults", *user, f"--datadir={self.data}", "--auth-root-authentication-method=normal"], env=environment)
        self.socket = os.path.join(self.home, "socket")
        with open(os.path.join(self.home, "log"), "w") as log:
            self.process = subprocess.Popen([program, "--no-defaults", *user, f"--datadir={self.data}", f"--socket={self.socket}",
                f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={self.home}/pid"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.client = [self.mariadb, "--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "--local-infile=1"]
        for attempt in range(300):
            try:
                call([*self.client, "-e", "CREATE DATABASE IF NOT EXISTS events"])
                break
            except RuntimeError:
                if attempt == 299 or self.process.poll() is not None:
                    raise
                time.sleep(0.2)
        names = ("version", "innodb_flush_log_at_trx_commit", "log_bin", "innodb_buffer_pool_size", "innodb_log_file_size")
        version, *rest = self.execute(f"SELECT {', '.join('@@' + name for name in names)}")[0]
        self.about = version + "".join(f", {name} = {value}" for name, value in zip(names[1:], rest))

    def values(self, _table):
        """What our jobs need to find a table."""
        return {"URL": f"jdbc:mariadb://127.0.0.1:{self.port}/events?ssl-mode=disable", "USERNAME": "root"}

    def execute(self, sql, _table=None):
        return [tuple(line.split("\t")) for line in call([*self.client, "-N", "-B", "-e", sql, "events"]).splitlines()]

    def empty(self, table):
        self.execute(f"TRUNCATE TABLE {table}")

    def bulk(self, file, table):
        lines = "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' LINES TERMINATED BY '\\n'"
        self.execute(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} CHARACTER SET utf8mb4 {lines} ({', '.join(COLUMNS)})")

    def _script(self, lines):
        file = os.path.join(self.home, "script.sql")
        with open(file, "w") as out:
            out.writelines(lines)
        with open(file) as script:
            begun = time.monotonic()
            call([*self.client, "events"], stdin=script)
            return time.monotonic() - begun

    def singly(self, rows, seconds):
        prepare = f"PREPARE u FROM 'UPDATE {STATES} SET {', '.join(c + ' = ?' for c in COLUMNS[1:])} WHERE event_id = ?';\n"
        line = lambda row: f"EXECUTE u USING {', '.join(quoted(v) for v in row[1:])}, {row[0]};\n"
        # So many that they take about the time: the first few say how long one takes.
        few, rest = rows[:200], rows[200:] or rows
        took = self._script([prepare, *map(line, few)])
        some = rest[:max(200, int(len(few) / took * seconds))]
        return len(some) / self._script([prepare, *map(line, some)])

    def thousands(self, rows):
        sets = ", ".join(f"{c} = VALUES({c})" for c in COLUMNS[1:])
        return len(rows) / self._script(statements(rows, 1000, f"INSERT INTO {STATES} ({', '.join(COLUMNS)})", f"ON DUPLICATE KEY UPDATE {sets}"))

    def bytes(self, table):
        return os.path.getsize(os.path.join(self.data, "events", f"{table}.ibd"))

    def stop(self):
        self.process.terminate()
        self.process.wait(120)


# Says the version of DuckDB's library, which is found as our jobs find it.
DUCKDB_VERSION = """
import ctypes, os
library = ctypes.CDLL(os.environ.get("TIDEMILL_DUCKDB_LIBRARY") or "libduckdb.so")
library.duckdb_library_version.restype = ctypes.c_char_p
print(library.duckdb_library_version().decode())
"""


class DuckDb:
    name = "DuckDB"
    # How long statements of a thousand rows are measured: one may take seconds in a large table.
    THOUSANDS_S = 30

    def __init__(self, work):
        try:
            import duckdb
        except ImportError:
            raise FileNotFoundError("PyPI's duckdb") from None
        try:
            # Not in this process, where it would be beside the one that PyPI's duckdb brings.
            version = call([sys.executable, "-c", DUCKDB_VERSION]).strip()
        except RuntimeError:
            raise FileNotFoundError("DuckDB's library (libduckdb.so, or what TIDEMILL_DUCKDB_LIBRARY names)") from None
        self.connect = duckdb.connect
        # A file a table, so that one can be emptied and its size be told.
        self.files = {table: os.path.join(work, f"{table}.duckdb") for table in (EVENTS, STATES)}
        names = ("memory_limit", "threads")
        with duckdb.connect() as connection:
            settings = [connection.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in names]
        said = "".join(f", {name} = {value}" for name, value in zip(names, settings))
        self.about = f"{version} (its library) in our jobs, v{duckdb.__version__} (PyPI's duckdb) in its own ways{said}"

    def values(self, table):
        """What our jobs need to find a table."""
        return {"URL": f"jdbc:duckdb:{self.files[table]}"}

    def execute(self, sql, table):
        # Nobody else may open a file before it is closed.
        with self.connect(self.files[table]) as connection:
            return connection.execute(sql).fetchall()

    def _parts(self, table):
        """The file, and its log of changes where there is one."""
        return [file for file in (self.files[table], f"{self.files[table]}.wal") if os.path.exists(file)]

    def empty(self, table):
        """A file as new, with the table."""
        created = self.execute(f"SELECT sql FROM duckdb_tables() WHERE table_name = '{table}'", table)[0][0]
        for file in self._parts(table):
            os.remove(file)
        self.execute(created, table)

    def bulk(self, file, table):
        self.execute(f"COPY {table} FROM {quoted(file)} (FORMAT csv, HEADER false)", table)

    def singly(self, rows, seconds):
        """Updates a second, each by a prepared statement in a transaction of its own."""
        with self.connect(self.files[STATES]) as connection:
            connection.execute(f"PREPARE u AS UPDATE {STATES} SET {', '.join(c + ' = ?' for c in COLUMNS[1:])} WHERE event_id = ?")
            begun, done = time.monotonic(), 0
            while done < len(rows) and time.monotonic() - begun < seconds:
                # Twice as fast as a call of the module with parameters, or its executemany.
                connection.execute(f"EXECUTE u({', '.join(quoted(v) for v in [*rows[done][1:], rows[done][0]])})")
                done += 1
            return done / (time.monotonic() - begun)

    def thousands(self, rows):
        # A key that is there twice in a statement is an error.
        rows = list({row[0]: row for row in rows}.values())
        sets = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS[1:])
        # With literals: ten thousand parameters take longer.
        scripts = list(statements(rows, 1000, f"INSERT INTO {STATES} ({', '.join(COLUMNS)})", f"ON CONFLICT (event_id) DO UPDATE SET {sets}"))
        with self.connect(self.files[STATES]) as connection:
            begun, done = time.monotonic(), 0
            while done < len(scripts) and time.monotonic() - begun < self.THOUSANDS_S:
                connection.execute(scripts[done])
                done += 1
            return min(1000 * done, len(rows)) / (time.monotonic() - begun)

    def bytes(self, table):
        return sum(map(os.path.getsize, self._parts(table)))

    def stop(self):
        pass


STORES = {"sqlite": Sqlite, "postgres": Postgres, "mariadb": MariaDb, "duckdb": DuckDb}
# Those that are measured if none is named.
BY_DEFAULT = ("sqlite", "postgres", "mariadb")
