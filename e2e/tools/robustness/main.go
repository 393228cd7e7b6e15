// Command judge decides whether the history of an etcd cluster is one that etcd may have.
//
// It reads a directory in the form of etcd's robustness suite: client-<number>/operations.json and watch.json are what
// clients requested and saw, and server-<name>/member/wal, where it exists, are the members' logs. Reads and writes
// must be linearizable. With logs, watches and reads of old revisions must agree with the logs.
//
// It prints one JSON object and exits with 0 if all is fine, with 1 if there is a violation (then violation.html in the
// directory is a picture of the history), and with 2 if it cannot decide.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/zap"

	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
)

// verdict is the printed object.
type verdict struct {
	// Verdict is fine, violation or undecided.
	Verdict string `json:"verdict"`
	// Reason says why the verdict is not fine.
	Reason            string  `json:"reason"`
	Operations        int     `json:"operations"`
	WatchEvents       int     `json:"watchEvents"`
	PersistedRequests int     `json:"persistedRequests"`
	Picture           *string `json:"picture"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

const (
	fine      = "fine"
	violation = "violation"
	undecided = "undecided"
)

var exitCodes = map[string]int{fine: 0, violation: 1, undecided: 2}

func main() {
	timeout := flag.Duration("timeout", 5*time.Minute, "how long to look for an order that explains the history")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: judge [-timeout DURATION] DIRECTORY\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(exitCodes[undecided])
	}
	begun := time.Now()
	said := judge(flag.Arg(0), *timeout)
	said.Seconds = time.Since(begun).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitCodes[undecided])
	}
	os.Exit(exitCodes[said.Verdict])
}

// judge never panics, although the suite panics if it meets something unknown.
func judge(directory string, timeout time.Duration) (said verdict) {
	said.Verdict = undecided
	defer func() {
		if err := recover(); err != nil {
			said.Verdict, said.Reason = undecided, fmt.Sprintf("the suite gives up: %v", err)
		}
	}()
	lg, err := logger()
	if err != nil {
		said.Reason = err.Error()
		return said
	}
	reports, err := report.LoadClientReports(directory)
	if err != nil {
		said.Reason = fmt.Sprintf("the clients' reports: %v", err)
		return said
	}
	for _, client := range reports {
		said.Operations += len(client.KeyValue)
		said.WatchEvents += client.WatchEventCount()
	}
	if said.Operations == 0 {
		said.Reason = fmt.Sprintf("there are no requests in %s", directory)
		return said
	}
	persisted, err := persistedRequests(lg, directory)
	if err != nil {
		said.Reason = fmt.Sprintf("the members' logs: %v", err)
		return said
	}
	said.PersistedRequests = len(persisted)

	result := validate.ValidateAndReturnVisualize(lg, validate.Config{}, reports, persisted, timeout)
	said.Verdict, said.Reason = decide(result)
	if said.Verdict == violation {
		path := filepath.Join(directory, "violation.html")
		if err := porcupine.VisualizePath(result.Linearization.Model, result.Linearization.Info, path); err != nil {
			lg.Error("there is no picture", zap.Error(err))
		} else {
			said.Picture = &path
		}
	}
	return said
}

// decide distinguishes a violation from a question without an answer: a history that does not meet the suite's
// assumptions, or one that takes too long.
func decide(result validate.RobustnessResult) (string, string) {
	if err := result.Assumptions.Error(); err != nil {
		return undecided, fmt.Sprintf("assumptions: %v", err)
	}
	for _, part := range []struct {
		name   string
		result validate.Result
	}{
		{"linearization", result.Linearization.Result},
		{"watch", result.Watch},
		{"reads of old revisions", result.Serializable},
	} {
		switch part.result.Status {
		case validate.Success, validate.Unknown:
		case validate.Failure:
			return violation, fmt.Sprintf("%s: %s", part.name, part.result.Message)
		default:
			return undecided, fmt.Sprintf("%s: %v", part.name, part.result.Error())
		}
	}
	return fine, ""
}

// logger writes details of what is wrong to standard error.
func logger() (*zap.Logger, error) {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	config.Sampling = nil
	config.DisableStacktrace = true
	return config.Build()
}
