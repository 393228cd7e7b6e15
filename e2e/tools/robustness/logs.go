package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/raft/v3/raftpb"
)

// persistedRequests returns the requests in the members' logs; none if there are no logs.
func persistedRequests(lg *zap.Logger, directory string) ([]model.EtcdRequest, error) {
	members, err := filepath.Glob(filepath.Join(directory, "server-*"))
	if err != nil || len(members) == 0 {
		return nil, err
	}
	for _, member := range members {
		if err := forgetV2(lg, member); err != nil {
			return nil, fmt.Errorf("%s: %w", member, err)
		}
	}
	requests, err := report.LoadClusterPersistedRequests(lg, directory)
	if err == nil && len(requests) == 0 {
		err = fmt.Errorf("there are no requests in the logs of %d members", len(members))
	}
	return requests, err
}

// forgetV2 empties those entries of a log that hold requests of etcd's API v2. The log is a copy. etcd 3.5 and earlier
// write such entries when a member starts. They can be recognized in the same way: they are not requests of v3. The
// suite ignores most of them, and fails at the others.
func forgetV2(lg *zap.Logger, member string) error {
	state, entries, err := report.ReadWAL(lg, member)
	if err != nil {
		// The suite decides how many logs may be missing.
		lg.Warn("a member's log cannot be read", zap.String("member", member), zap.Error(err))
		return nil
	}
	found := false
	for _, entry := range entries {
		isV3 := proto.Unmarshal(entry.Data, &pb.InternalRaftRequest{}) == nil
		if entry.GetType() == raftpb.EntryNormal && !isV3 {
			entry.Data = nil
			found = true
		}
	}
	if !found {
		return nil
	}
	directory := datadir.ToWALDir(member)
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	// etcd allocates a log in advance, and this one does not grow.
	wal.SegmentSizeBytes = 1 << 20
	log, err := wal.Create(lg, directory, nil)
	if err != nil {
		return err
	}
	defer log.Close()
	return log.Save(state, entries)
}
