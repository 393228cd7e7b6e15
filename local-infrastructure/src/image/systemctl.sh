#!/bin/sh
exec /usr/bin/python3 -I /usr/lib/local-infrastructure/systemctl.pyc "$@"
