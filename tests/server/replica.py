# SPDX-License-Identifier: MIT
"""For tests with a PostgreSQL that is replicated: a primary, and a replica that follows it until it is cut off or promoted."""

import os
import signal
import subprocess
import time

from e2e import Postgres, await_, cleanups, folder


def query(server, command):
    """What a statement returns: a list of rows, each a list of texts."""
    done = subprocess.run([f"{server.programs}/psql", "-At", "-F", "\t", "-h", server.folder, "-U", "foliot", "-d",
                           "postgres", "-c", command], cwd=server.folder, capture_output=True, text=True, check=False,
                          **server.user)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines()]


class Replica(Postgres):
    """A copy of `primary` that streams from it."""

    def __init__(self, primary):  # pylint: disable=super-init-not-called
        self.primary, self.programs, self.user, self.settings = primary, primary.programs, primary.user, []
        self.folder = folder()
        if self.user:
            os.chown(self.folder, self.user["user"], self.user["group"])
        self.data = os.path.join(self.folder, "data")
        self.run("pg_basebackup", "-h", primary.folder, "-U", "foliot", "-D", self.data, "-R", "-c", "fast", "-N")
        self.start()
        cleanups.callback(self.stop)
        await_(lambda: query(primary, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"), "streaming")

    def await_all(self):
        """Until the replica has everything that the primary has written."""
        [[position]] = query(self.primary, "SELECT pg_current_wal_lsn()")
        await_(lambda: query(self, f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{position}'"), "replicated")

    def receiver(self):
        """The process that receives what the primary writes."""
        return int(await_(lambda: query(self, "SELECT pid FROM pg_stat_wal_receiver WHERE pid IS NOT NULL"),
                          "a receiver")[0][0])

    def cut(self):
        """From now on it falls behind."""
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.sql("SELECT pg_reload_conf()")
        await_(lambda: not query(self, "SELECT 1 FROM pg_stat_wal_receiver"), "cut off")

    def promote(self):
        """The primary is gone at once, and this takes its place."""
        self.primary.stop()
        self.sql("SELECT pg_promote()")
        await_(lambda: query(self, "SELECT 1 WHERE NOT pg_is_in_recovery()"), "promoted")


def url_of_both(primary, replica):
    """A store, in a schema of its own, on whichever of the two takes writes."""
    schema = f"e2e{next(primary.numbers)}"
    primary.sql(f"CREATE SCHEMA {schema}")
    return (f"postgres://foliot@/postgres?host={primary.folder},{replica.folder}&target_session_attrs=read-write"
            f"&options=-csearch_path%3D{schema}"), schema


class Standby:
    """Makes a replica that commits wait for hang for a while."""

    def __init__(self, replica):
        self.pid = replica.receiver()

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(0.05)

    def __exit__(self, kind, value, trace):
        os.kill(self.pid, signal.SIGCONT)
