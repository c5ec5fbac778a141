#!/bin/sh
# Sees to it that the tests find PostgreSQL and nginx; installs Debian's as root where they are missing.
set -eu

has_postgres() { command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }
has_nginx() { command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]; }

has_postgres && has_nginx && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "the tests need PostgreSQL's server and nginx; on Debian and Ubuntu: apt install postgresql nginx-light" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update && apt-get install -y --no-install-recommends postgresql nginx-light; } >&2
