package agent

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/statuspage"
)

// assemblePage returns the status page, or nil if it is disabled.
func (a *agent) assemblePage(pods *local.PodLister, checks []local.Check) (http.Handler, error) {
	cfg := a.cfg
	address := cfg.HealthzAddress()
	if !*cfg.Tinylet.StatusPage || address == "" {
		return nil, nil
	}
	pc := statuspage.Config{Notify: a.notify, Log: a.log}
	if file := cfg.Tinylet.StatusPageTokenFile; file != "" {
		pc.Token = statuspage.TokenFile(file)
	} else if at, _ := netip.ParseAddr(cfg.Kubelet.HealthzBindAddress); !at.IsLoopback() { // also if it is no address
		a.log.Warn("status page is disabled: address is not loopback", "address", address, "remedy", "give it a token with statusPageTokenFile, or set healthzBindAddress to 127.0.0.1")
		return nil, nil
	}
	source := &statuspage.Source{
		NodeName: cfg.NodeName, Started: time.Now(), MemoryCapacity: uint64(max(a.node.MemoryCapacity(), 0)), Checks: checks,
		Pods: pods.List, Usage: a.usage, Events: a.events.Recent, Conditions: a.pressureConditions,
	}
	if a.cluster != nil {
		source.Cluster = a.cluster.state.State
	}
	pc.State = source.State
	return statuspage.New(pc)
}

// notify sends to slot when a pod's status changes, and at each event.
func (a *agent) notify(slot chan<- struct{}) (cancel func()) {
	statuses, events := a.statuses.Notify(slot), a.events.Subscribe(slot)
	return func() { statuses(); events() }
}
