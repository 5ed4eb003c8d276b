#!/bin/sh
# As the official image: on an empty volume make a cluster with POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, then
# run the server.
set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA=/var/lib/postgresql/data/pgdata
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
chown postgres:postgres /var/lib/postgresql/data
mkdir -p /run/postgresql && chown postgres:postgres /run/postgresql
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    : "${POSTGRES_PASSWORD:?}"
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    file=$(mktemp)
    printf %s "$POSTGRES_PASSWORD" >"$file" && chown postgres "$file"
    as_postgres initdb --username="$user" --pwfile="$file" --auth-host=scram-sha-256 --auth-local=trust -E UTF8 >/dev/null
    rm "$file"
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    echo "host replication all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    as_postgres pg_ctl -w -o "-c listen_addresses=''" start >/dev/null
    [ "$database" = postgres ] || as_postgres createdb --username="$user" "$database"
    as_postgres pg_ctl -w -m fast stop >/dev/null
fi
exec setpriv --reuid postgres --regid postgres --init-groups "$@" -c listen_addresses='*'
