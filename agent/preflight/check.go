// Package preflight tells whether this system can be a node, and where it
// cannot, why and what helps. It collects facts, changes nothing, and judges
// them apart from that: Evaluate is a pure function from Facts to Findings.
package preflight

import (
	"cmp"
	"context"
	"net/netip"
	"runtime"
	"time"

	"github.com/tinylet/tinylet/agent/config"
)

// Level is how much a finding weighs.
type Level string

// Levels, from good to bad.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the node works, but less well or not for everything
	Fail Level = "fail" // the node cannot work
)

// Finding is the judgement of one matter.
type Finding struct {
	// ID names the matter and stays the same from release to release.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	// What is what was found.
	What string `json:"what"`
	// Remedy is what to do about it; never empty where Level is not OK.
	Remedy string `json:"remedy,omitempty"`
}

// Options say where to look. The zero value is this system with the usual
// places.
type Options struct {
	// Root is the file system to read facts of the kernel and the board
	// from, such as a captured tree; "" is "/".
	Root string
	// Endpoint is the container runtime's, such as
	// unix:///run/containerd/containerd.sock, the default.
	Endpoint string
	// RootDir, LogDir, ImageDir and RunDir are where pods, their logs, the
	// runtime's images and the agent's socket live.
	RootDir, LogDir, ImageDir, RunDir string
	// NodeName is the node's name; "" is the host's.
	NodeName string
	// FailSwapOn is the configuration's field of that name.
	FailSwapOn bool
	// Network is the configuration's section of that name, and PodNetworks
	// are the networks of the node's pods; nil leaves them to the API server.
	Network     config.Network
	PodNetworks []netip.Prefix
	// Eviction is what the configuration keeps of the memory.
	Eviction Eviction
	// Journal is what the configuration says of it.
	Journal Journal
	// ConfigFile names the configuration and Config reads it, answering
	// warnings and an error; nil where there is none.
	ConfigFile string
	Config     func() (warnings []string, err error)
	// Now is the time on the system's clock; zero is asked for.
	Now time.Time
	// Built is when this binary was built; zero is unknown.
	Built time.Time
}

// Places that are looked at unless Options name others.
const (
	DefaultEndpoint = "unix:///run/containerd/containerd.sock"
	DefaultRootDir  = "/var/lib/kubelet"
	DefaultLogDir   = "/var/log/pods"
	DefaultImageDir = "/var/lib/containerd"
	DefaultRunDir   = "/run/tinylet"
)

// Run collects the facts and judges them. It blocks for as long as the
// runtime takes to answer, at most 5 s.
func Run(ctx context.Context, o Options) []Finding {
	return Evaluate(Collect(ctx, o))
}

// Failed says whether any finding keeps the node from working.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&o.Root, "/"},
		{&o.Endpoint, DefaultEndpoint},
		{&o.RootDir, DefaultRootDir},
		{&o.LogDir, DefaultLogDir},
		{&o.ImageDir, DefaultImageDir},
		{&o.RunDir, DefaultRunDir},
		{&o.Network.Bridge, config.DefaultBridge},
	} {
		*d.field = cmp.Or(*d.field, d.value)
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
}

// architecture is what this binary runs as, which on a 64-bit kernel may
// still be 32-bit.
const architecture = runtime.GOARCH
