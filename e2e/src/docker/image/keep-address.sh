#!/bin/sh
# Gives this machine the address back that it had when it was started first. The hardware address goes with it: what others
# remember of the two stays true.
set -eu
kept=/etc/kept-address
address=$(ip -4 -oneline address show dev eth0 | awk '{ print $4; exit }')
hardware=$(cat /sys/class/net/eth0/address)
gateway=$(ip -4 route show default | awk '{ print $3; exit }')
if [ ! -s $kept ]; then
    echo "$address $hardware" >$kept
    exit
fi
read -r first first_hardware <$kept
[ "$first" != "$address" ] || exit 0
ip address flush dev eth0
ip address add "$first" dev eth0
[ -z "$gateway" ] || ip route add default via "$gateway"
# Last, as this is what the others are told of.
echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify
ip link set dev eth0 address "$first_hardware"
