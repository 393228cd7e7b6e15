#!/bin/sh
# What kubeadm and kubelet expect: forwarding, and the cgroup that kubelet's configuration calls cgroupRoot.
set -eu
sysctl -q -w net.ipv4.ip_forward=1
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    # Version 2: a cgroup's processes may be in its leaves only, once its controllers are handed down.
    mkdir -p /sys/fs/cgroup/init /sys/fs/cgroup/kubelet
    for pid in $(cat /sys/fs/cgroup/cgroup.procs); do echo "$pid" >/sys/fs/cgroup/init/cgroup.procs || true; done
    sed 's/\(^\| \)/&+/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
    exit
fi
for hierarchy in /sys/fs/cgroup/*/; do
    # Some are names that another hierarchy has elsewhere.
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir -p "$hierarchy/kubelet"
    for file in cpuset.cpus cpuset.mems; do
        [ ! -e "$hierarchy/$file" ] || cat "$hierarchy/$file" >"$hierarchy/kubelet/$file"
    done
done
