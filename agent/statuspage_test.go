package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/statuspage"
)

// pageOf makes a running agent's page anew, with those checks.
func (l *lab) pageOf(checks []local.Check, log *slog.Logger) *pageState {
	l.t.Helper()
	l.agent.log = log
	handler := l.agent.newPage(&local.PodLister{Statuses: l.agent.statuses, Workers: l.agent.workers, Node: l.agent.node}, l.agent.usage, checks)
	if handler == nil {
		return nil
	}
	r := httptest.NewRequestWithContext(l.t.Context(), "GET", "http://127.0.0.1/page/state", nil)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	out := &pageState{code: w.Code}
	if w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), &out.State); err != nil {
			l.t.Fatal(err)
		}
	}
	return out
}

type pageState struct {
	statuspage.State
	code int
}

func TestPageShowsTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		web, crash := parse(t, webManifest)[0], shell(t, "crash", "Always", "exit 3")
		l.want(web, crash)
		l.start()
		slot := make(chan struct{}, 1)
		cancel := l.agent.notify(slot)
		l.settle(25 * time.Second)
		if len(slot) != 1 {
			t.Error("nobody was told that pods start")
		}
		cancel()
		checks := []local.Check{
			{Name: "good", Healthy: func(time.Time) error { return nil }},
			{Name: "bad", Healthy: func(time.Time) error { return errors.New("stands still") }},
		}
		l.agent.usage = func(context.Context) (*local.Usage, error) {
			return &local.Usage{
				Node:    local.NodeUsage{CPUNanoCores: new(uint64(5)), Cores: 64, MemoryBytes: 6, MemoryAvailableBytes: 7, MemoryCapacityBytes: 8, Pressure: &local.Pressure{IO: 9}},
				Classes: []local.CgroupUsage{{Name: "BestEffort", MemoryBytes: 10}},
				Agent:   &local.CgroupUsage{Name: "tinylet", MemoryBytes: 11},
				Pods: []local.PodUsage{{UID: string(web.UID), CPUNanoCores: new(uint64(12)), MemoryBytes: 13, Containers: []local.ContainerUsage{
					{Name: "server", CPUNanoCores: new(uint64(14)), MemoryBytes: 15},
				}}},
			}, nil
		}
		got := l.pageOf(checks, slog.New(slog.DiscardHandler))
		if diff := cmp.Diff([]statuspage.Check{{Name: "good"}, {Name: "bad", Problem: "stands still"}}, got.Checks); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
		n := got.Node
		if n.Name != "board" || *n.CPUNanoCores != 5 || n.Cores != 64 || n.MemoryBytes != 6 || n.MemoryAvailableBytes != 7 || n.MemoryCapacityBytes != 8 || n.Pressure.IO != 9 ||
			n.Agent.MemoryBytes != 11 || len(got.Classes) != 1 || got.Server != nil || len(got.Conditions) != 3 || !got.Conditions[0].Good {
			t.Errorf("node %+v, classes %+v, server %+v, conditions %+v", n, got.Classes, got.Server, got.Conditions)
		}
		if len(got.Pods) != 2 || len(got.Events) == 0 || len(got.Events) > 30 {
			t.Fatalf("%d pods, %d events", len(got.Pods), len(got.Events))
		}
		c, w := got.Pods[0], got.Pods[1]
		if c.Name != crash.Name || c.Status != "CrashLoopBackOff" || c.Severity != statuspage.Bad || c.Restarts == 0 || c.CPUNanoCores != nil || c.Containers[0].Severity != statuspage.Bad {
			t.Errorf("crash %+v", c)
		}
		if w.Status != "Running" || w.Severity != statuspage.Good || w.Ready != 2 || *w.CPUNanoCores != 12 || w.MemoryBytes != 13 || w.Started.IsZero() || w.QOSClass != "BestEffort" {
			t.Errorf("web %+v", w)
		}
		for _, c := range w.Containers {
			switch c.Name {
			case "prepare":
				if c.State != "Completed" || c.Severity != statuspage.Over {
					t.Errorf("prepare %+v", c)
				}
			case "server":
				if c.State != "Running" || c.Severity != statuspage.Good || *c.CPUNanoCores != 14 || c.MemoryBytes != 15 {
					t.Errorf("server %+v", c)
				}
			}
		}
		l.agent.usage = func(context.Context) (*local.Usage, error) { return nil, errors.New("no cgroups") }
		if got := l.pageOf(nil, slog.New(slog.DiscardHandler)); got.code != 200 || len(got.Pods) != 2 || len(got.Events) == 0 ||
			len(got.Checks) != 1 || got.Checks[0] != (statuspage.Check{Name: "figures", Problem: "no cgroups"}) {
			t.Errorf("without figures that should be there: %d %+v", got.code, got.State)
		}
		l.agent.usage = nil
		if got := l.pageOf(nil, slog.New(slog.DiscardHandler)); got.code != 200 || len(got.Pods) != 2 || got.Node.MemoryCapacityBytes == 0 || got.Node.CPUNanoCores != nil {
			t.Errorf("where nobody measures: %d %+v", got.code, got.State)
		}
	})
}

func TestWhereThereIsAPage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		page   bool
		log    string
	}{
		{"defaults", func(*config.Config) {}, true, ""},
		{"IPv6", func(c *config.Config) { c.Kubelet.HealthzBindAddress = "::1" }, true, ""},
		{"switched off", func(c *config.Config) { c.Tinylet.StatusPage = new(false) }, false, ""},
		{"no healthz", func(c *config.Config) { c.Kubelet.HealthzPort = new(int32(0)) }, false, ""},
		{"for all", func(c *config.Config) { c.Kubelet.HealthzBindAddress = "0.0.0.0" }, false, "statusPageTokenFile"},
		{"for all, with a token", func(c *config.Config) {
			c.Kubelet.HealthzBindAddress, c.Tinylet.StatusPageTokenFile = "0.0.0.0", "/none"
		}, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				l.start()
				tt.change(l.agent.cfg)
				var log bytes.Buffer
				got := l.pageOf(nil, slog.New(slog.NewTextHandler(&log, nil)))
				if (got != nil) != tt.page || !strings.Contains(log.String(), tt.log) || (tt.page && tt.log == "" && tt.name != "for all, with a token" && log.Len() != 0) {
					t.Errorf("page %v, log %s", got, log.String())
				}
				if tt.name == "for all, with a token" && got.code != 503 { // the file is not there
					t.Errorf("answered %d", got.code)
				}
			})
		})
	}
}
