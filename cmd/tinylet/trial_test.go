package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/journal"
	"github.com/tinylet/tinylet/agent/store/journal/journaltest"
	"github.com/tinylet/tinylet/agent/store/upgrade"
)

func TestConfirm(t *testing.T) {
	down := errors.New("down")
	for _, tc := range []struct {
		name      string
		healthyAt time.Duration // 0 is never
		endsAt    time.Duration // of the agent; 0 is never
		want      error
		after     time.Duration
		onTrial   bool
	}{
		{name: "healthy at once", healthyAt: time.Second, after: time.Minute},
		{name: "healthy late", healthyAt: 95 * time.Second, after: 100 * time.Second},
		{name: "never healthy", want: errNotConfirmed, after: 5 * time.Minute, onTrial: true},
		{name: "stopped early", healthyAt: time.Second, endsAt: 30 * time.Second, after: 30 * time.Second, onTrial: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			files := upgrade.Files{Dir: filepath.Join(dir, "state"), Program: filepath.Join(dir, "tinylet"), Former: filepath.Join(dir, "former"), Running: filepath.Join(dir, "tinylet")}
			for _, name := range []string{files.Program, filepath.Join(dir, "next")} {
				if err := os.WriteFile(name, []byte(name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := files.Replace(filepath.Join(dir, "next")); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.endsAt > 0 {
					time.AfterFunc(tc.endsAt, cancel)
				}
				err := confirm(ctx, slog.New(slog.DiscardHandler), files, func(context.Context) error {
					if tc.healthyAt > 0 && time.Since(start) >= tc.healthyAt {
						return nil
					}
					return down
				})
				if !errors.Is(err, tc.want) || time.Since(start) != tc.after {
					t.Errorf("confirm = %v after %v, want %v after %v", err, time.Since(start), tc.want, tc.after)
				}
			})
			if files.OnTrial() != tc.onTrial {
				t.Errorf("on trial: %v", files.OnTrial())
			}
		})
	}
}

func TestHealthyWithoutRuntime(t *testing.T) {
	for _, tc := range []struct {
		failed map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{"runtime": "down"}, ""},
		{map[string]string{"runtime": "down", "tasks": "x", "syncloop": "y"}, "not healthy: syncloop, tasks"},
	} {
		got := ""
		if err := healthyBut(tc.failed, local.RuntimeCheck); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%v: %q, want %q", tc.failed, got, tc.want)
		}
	}
}

// A binary on trial that does not know the format of the journal does not start.
func TestTrialReadsJournal(t *testing.T) {
	dir := t.TempDir()
	cfg := new(config.Config)
	cfg.Paths.State = dir
	j, err := journal.Open(journal.Config{Dir: cfg.Paths.Journal(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := readsJournal(cfg); err != nil {
		t.Errorf("a journal of this version: %v", err)
	}
	journaltest.SetVersion(t, cfg.Paths.Journal(), 2)
	if err := readsJournal(cfg); !errors.Is(err, journal.ErrVersion) {
		t.Errorf("a journal of the next version: %v", err)
	}
	cfg.Kubeconfig = ""
	if err := readsJournal(cfg); err != nil {
		t.Errorf("a node without an API server: %v", err)
	}
}
