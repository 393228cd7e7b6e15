#!/bin/sh
# Written by etcdadm. etcd.service runs it in place of etcd.
#   start    becomes etcd, unless this member's data is gone or an older copy: then exits with @REFUSED@
#   stopped  marks the data that etcd left
set -u
umask 077

data='@DATA@'
env='@ENV@'
outer='@OUTER@'
inner="$data/member/etcdadm-epoch"
refusal='@REFUSAL@'

# Replaces a file with one line or more. On disk when it returns.
put() {
	printf '%s\n' "$2" >"$1.new" && sync "$1.new" && mv -f "$1.new" "$1" && sync "${1%/*}"
}

has_log() {
	set -- "$data"/member/wal/*.wal
	[ -e "$1" ]
}

# Whether the epoch beside the log is one of those outside.
fits() {
	[ -n "$here" ] && case " $known " in *" $here "*) true ;; *) false ;; esac
}

# Whether etcd.env is that of a member that has a log.
settled() {
	grep -qx 'ETCD_INITIAL_CLUSTER_STATE=existing' "$env" && ! grep -q '^ETCD_INITIAL_CLUSTER=.*,' "$env"
}

# Lets etcd.env say what keeps etcd from starting without a log.
settle() {
	settled || {
		name=$(sed -n 's/^ETCD_NAME=//p' "$env") && url=$(sed -n 's/^ETCD_INITIAL_ADVERTISE_PEER_URLS=//p' "$env") &&
			rest=$(grep -v '^ETCD_INITIAL_CLUSTER' "$env") && [ -n "$name" ] && [ -n "$url" ] && put "$env" "$rest
ETCD_INITIAL_CLUSTER=$name=$url
ETCD_INITIAL_CLUSTER_STATE=existing"
	}
}

# A new epoch: announced outside, written beside the log, settled outside. Without one outside, any epoch beside the log
# fits: then the one beside the log comes first.
advance() {
	new=$(cat /proc/sys/kernel/random/uuid) &&
		mkdir -p "$data/member" && sync "$data" &&
		{ [ ! -e "$outer" ] || put "$outer" "$here $new$1"; } && put "$inner" "$new" && put "$outer" "$new$1"
}

# Says what is not protected while the epochs stay as they are.
unmarked() {
	echo "etcd-guard: $outer and $inner cannot be written (see the lines above; is a disk full, or read-only?). $1. Until they are written again, a copy of $data that was taken at any time since they last were is not recognized as old: put no copy back. Make room, then restart etcd.service" >&2
}

refuse() {
	echo "etcd is not started: $1" >&2
	mkdir -p "${refusal%/*}" && printf '%s\n' "$1" >"$refusal"
	exit @REFUSED@
}

known='' begun='' here=''
[ ! -e "$outer" ] || { read -r known && read -r begun; } <"$outer"
[ ! -e "$inner" ] || read -r here <"$inner"
log_seen='
begun'

case "${1-}" in
start)
	grep -qxF "ETCD_DATA_DIR=$data" "$env" ||
		refuse "$env does not say ETCD_DATA_DIR=$data: etcd would start as a new cluster, without the data of this member. Restore $env; or stop etcd.service, and run etcdadm join again with all the flags of before (or etcdadm init, if that was run on this machine)"
	if has_log; then
		if [ -e "$outer" ] && ! fits; then
			refuse "the data in $data is not what this member had when it last stopped or started: it is an older copy, or restored, or another member's. With it the member would forget what it has promised to the others. Put the latest data back; or remove this member from the cluster, then $data, $outer and member.json in /var/lib/etcdadm, and run etcdadm join. Only if this data is known to be the latest, or the whole cluster was restored: remove $outer and start etcd.service"
		fi
		# Not refused: a disk that fills up everywhere at once would stop every member at its next start.
		settle && advance "$log_seen" || unmarked "etcd is started all the same"
	elif [ "$begun" = begun ] || settled; then
		refuse "this member has run, but there is no write-ahead log in $data: its data is gone, or its disk is not mounted. With an empty directory the member would forget what it has promised to the others. Bring the data back and start etcd.service; or remove this member from the cluster, then $data, $outer and member.json in /var/lib/etcdadm, and run etcdadm join"
	elif [ -e "$outer" ] && ! fits; then
		refuse "$data is not the directory that etcd was started in before: its data is gone, or its disk is not mounted. Bring it back and start etcd.service; or remove this member from the cluster, then $data, $outer and member.json in /var/lib/etcdadm, and run etcdadm join"
	else
		advance '' || {
			echo "etcd-guard: the data cannot be marked, so etcd is not started for the first time" >&2
			exit 1
		}
	fi
	rm -f "$refusal"
	exec '@ETCD@'
	;;
stopped)
	if has_log && { fits || [ ! -e "$outer" ]; }; then
		settle && advance "$log_seen" || unmarked "etcd has stopped"
	fi
	exit 0
	;;
*)
	echo "usage: $0 start|stopped" >&2
	exit 2
	;;
esac
