// Package preflight checks whether this system can be a node, and reports the cause
// and the remedy of each problem. Collect gathers facts and changes nothing.
// Evaluate is a pure function from Facts to Findings.
package preflight

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/config"
)

// Level is the severity of a finding.
type Level string

// Levels, from good to bad.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the node works, but with limitations
	Fail Level = "fail" // the node cannot work
)

// Finding is the result of one check.
type Finding struct {
	// ID identifies the check and is stable across releases.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	// What describes what was found.
	What string `json:"what"`
	// Remedy describes how to correct it. It is never empty unless Level is OK.
	Remedy string `json:"remedy,omitempty"`
}

// Input are the facts that the caller of the check knows.
type Input struct {
	// NodeName is the node's name; "" is the host name.
	NodeName string
	// FailSwapOn is the field of KubeletConfiguration.
	FailSwapOn bool
	// Eviction are the memory reservations and the eviction threshold of the
	// configuration.
	Eviction Eviction
	// Journal are the journal's settings. Collect adds its state.
	Journal Journal
	Config  Config
	// Now is the system time; zero reads the clock.
	Now time.Time
	// Built is the build time of this binary; zero is unknown.
	Built time.Time
}

// Options configure the checks. The zero value checks this system with the default
// paths.
type Options struct {
	Input
	// Root is the root of the file system from which facts of the kernel and the
	// board are read, such as a captured tree; "" is "/".
	Root string
	// Endpoint is the container runtime's endpoint; "" is
	// config.DefaultRuntimeEndpoint.
	Endpoint string
	// RootDir, LogDir and RunDir are the directories of pods, of their logs and of
	// the agent's socket.
	RootDir, LogDir, RunDir string
	// Network is the section network of TinyletConfiguration. PodNetworks are the
	// networks of the node's pods; nil takes those that the API server assigns.
	Network     config.Network
	PodNetworks []netip.Prefix
}

// Run collects the facts and evaluates them. It blocks until the container runtime has
// answered, for at most 5 s, and until the kernel's network state is read, for at most
// 10 s in the case of nftables.
func Run(ctx context.Context, o Options) []Finding {
	return Evaluate(Collect(ctx, o))
}

// Failed reports whether any finding prevents the node from working.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Fail })
}

func (o *Options) setDefaults() {
	o.Root = cmp.Or(o.Root, "/")
	o.Endpoint = cmp.Or(o.Endpoint, config.DefaultRuntimeEndpoint)
	o.RootDir = cmp.Or(o.RootDir, config.DefaultRootDir)
	o.LogDir = cmp.Or(o.LogDir, config.DefaultPodLogsDir)
	o.RunDir = cmp.Or(o.RunDir, "/run/tinylet")
	o.Network.Bridge = cmp.Or(o.Network.Bridge, config.DefaultBridge)
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
}
