# SPDX-License-Identifier: MIT
"""Citus, for tests: a coordinator and two worker nodes on loopback. Needs a PostgreSQL that has the extension."""

import contextlib
import itertools
import os
import re
import subprocess

from e2e import Postgres, Skip
from members import free_port


def library(programs):
    """Where PostgreSQL looks for extensions."""
    done = subprocess.run([programs + "/pg_config", "--pkglibdir"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or os.path.join(os.path.dirname(programs), "lib")


class Node(Postgres):
    def __init__(self):
        self.port = free_port()
        super().__init__(listen_addresses="127.0.0.1", port=self.port, shared_preload_libraries="citus",
                         max_connections=200, max_prepared_transactions=100, log_statement="all", logging_collector="on",
                         log_filename="node.log", **{"citus.node_conninfo": "sslmode=disable"})
        self.sql("CREATE EXTENSION citus")

    def start(self):
        if not os.path.exists(os.path.join(library(self.programs), "citus.so")):
            raise Skip("Citus is not installed: the extension citus of this PostgreSQL")
        super().start()

    def sql(self, command):
        return self.ask(command)

    def ask(self, command):
        """What it selects, as text."""
        done = subprocess.run([self.programs + "/psql", "-qAtX", "-h", "127.0.0.1", "-p", str(self.port), "-U", "foliot",
                               "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", command], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stderr}")
        return done.stdout.strip()

    def run(self, program, *arguments, check=True):
        if program == "pg_isready":
            arguments = ("-h", "127.0.0.1", "-p", str(self.port))
        return super().run(program, *arguments, check=check)

    def url(self, schema):
        return f"postgres://foliot@127.0.0.1:{self.port}/postgres?options=-csearch_path%3D{schema}"

    def log(self):
        with open(os.path.join(self.data, "log", "node.log"), encoding="utf-8", errors="replace") as file:
            return file.read()


class Citus:
    def __init__(self):
        self.coordinator, *self.workers = self.nodes = [Node() for _ in range(3)]
        self.coordinator.ask(f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port})")
        for worker in self.workers:
            self.coordinator.ask(f"SELECT citus_add_node('127.0.0.1', {worker.port})")
        self.numbers = itertools.count(1)

    def schema(self):
        """Of a store of its own."""
        name = f"e2e{next(self.numbers)}"
        self.coordinator.ask(f"CREATE SCHEMA {name}")
        # A schema reaches the other nodes with the first table in it.
        self.coordinator.ask(f"CREATE TABLE {name}.first (x int); SELECT create_reference_table('{name}.first')")
        return name

    def node_of(self, schema, shard):
        """The worker that has the rows of a shard."""
        port = self.coordinator.ask(
            f"SELECT n.nodeport FROM pg_dist_placement p JOIN pg_dist_node n USING (groupid) WHERE p.shardid ="
            f" get_shard_id_for_distribution_column('{schema}.foliot_shard', {shard})")
        return next(node for node in self.nodes if node.port == int(port))

    def shards_of(self, schema, node, shards):
        return [i for i in range(shards) if self.node_of(schema, i) is node]

    @contextlib.contextmanager
    def without(self, node):
        """While the node is down, until the end of `with` or heal()."""
        node.stop()
        try:
            yield
        finally:
            self.heal()

    def heal(self):
        for node in self.nodes:
            if node.process.poll() is not None:
                node.start()


class StandIn:
    """A schema of plain PostgreSQL that looks like Citus to Foliot: shards with odd numbers are on one node, the others on
    another. While the first node is down, a statement that touches one of its rows fails as it does on Citus."""

    def __init__(self, database):
        self.database = database
        self.url = database.url().replace("foliot@", "standin@")
        self.schema = re.search(r"search_path%3D(\w+)", self.url)[1]
        database.sql(f"""
            CREATE ROLE standin LOGIN; ALTER SCHEMA {self.schema} OWNER TO standin; SET ROLE standin; SET search_path = {self.schema};
            CREATE TABLE down (node bigint);
            CREATE TABLE pg_dist_local_group AS SELECT 0::bigint AS groupid;
            CREATE TABLE pg_dist_partition (logicalrelid regclass);
            CREATE TABLE pg_dist_placement AS SELECT i AS shardid, i % 2 AS groupid FROM generate_series(0, 99) AS i;
            CREATE FUNCTION get_shard_id_for_distribution_column(regclass, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $2';
            CREATE FUNCTION node_answers(shard bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                IF EXISTS (SELECT 1 FROM down WHERE node = shard % 2) THEN
                    RAISE EXCEPTION 'connection to the remote node failed' USING ERRCODE = '08006';
                END IF;
                RETURN true;
            END $$;
            CREATE FUNCTION create_distributed_table(t regclass, col text, colocate_with text DEFAULT '') RETURNS void
            LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO pg_dist_partition VALUES (t);
                EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
                EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', t);
                EXECUTE format('CREATE POLICY nodes ON %s USING (node_answers(shard)) WITH CHECK (node_answers(shard))', t);
            END $$""")

    @contextlib.contextmanager
    def without_odd_shards(self):
        self.database.sql(f"INSERT INTO {self.schema}.down VALUES (1)")
        try:
            yield
        finally:
            self.database.sql(f"DELETE FROM {self.schema}.down")
