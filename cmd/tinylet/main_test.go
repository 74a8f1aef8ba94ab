package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tinylet/tinylet/agent/config"
)

// codedError is an error with an exit code, as commands return it.
type codedError struct{ code int }

func (e codedError) Error() string { return "two things\nare wrong" }
func (e codedError) ExitCode() int { return e.code }

func TestMainByName(t *testing.T) {
	const version = "Kubernetes v1.36.0+tinylet.0.0.0-dev\n"
	check := func() []*cobra.Command {
		return []*cobra.Command{{Use: "check", Short: "Check the board", RunE: func(*cobra.Command, []string) error { return codedError{3} }}}
	}
	for _, tc := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts; "" is nothing at all
	}{
		{name: "version of tinylet", args: []string{"/usr/bin/tinylet", "--version"}, stdout: version},
		{name: "version of the kubelet", args: []string{"/usr/bin/kubelet", "--version"}, stdout: version},
		{name: "version wins over other flags", args: []string{"kubelet", "--v=2", "--version", "--max-pods", "3"}, stdout: version},
		{name: "help", args: []string{"tinylet", "--help"}, stdout: "tinylet --config /etc/tinylet/config.yaml"},
		{name: "help names the commands", args: []string{"tinylet", "-h"}, stdout: "Check the board"},
		{name: "help of the kubelet", args: []string{"kubelet", "--help"}, stdout: "--volume-plugin-dir"},
		{name: "help on flags", args: []string{"tinylet", "help", "flags"}, stdout: "--volume-plugin-dir"},
		{name: "a coded error", args: []string{"tinylet", "check"}, code: 3, stderr: "tinylet: two things; are wrong\n"},
		{name: "the agent's flags are not a command's", args: []string{"tinylet", "--config", "x", "check"}, code: 1, stderr: "unknown flag: --config; see 'tinylet check --help'"},
		{name: "the kubelet has no commands", args: []string{"kubelet", "check"}, code: 1, stderr: `kubelet: unknown command "check" for "kubelet"`},
		{name: "unknown command", args: []string{"tinylet", "chek"}, code: 1, stderr: `unknown command "chek" for "tinylet"`},
		{name: "unknown flag", args: []string{"tinylet", "--nope"}, code: 1, stderr: "tinylet: unknown flag: --nope; see 'tinylet --help'\n"},
		{name: "missing file", args: []string{"kubelet", "--config=/no/such"}, code: 1, stderr: "kubelet: load configuration: read configuration: open /no/such: no such file"},
		{name: "invalid setting", args: []string{"kubelet", "--max-pods=-1", "--port=0"}, code: 1, stderr: "it must be between 1 and 65535; maxPods (--max-pods) is -1: it must be 0 or more\n"},
		{name: "another name", args: []string{"tinylet-arm64", "--version"}, stdout: version},
		{name: "no name", args: nil, code: 0, stderr: "no pods will run"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			p := program{commands: check(), stdout: &stdout, stderr: &stderr}
			p.run = func(context.Context, *config.Config, *slog.Logger) error { return nil }
			if code := p.main(t.Context(), tc.args); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, got := range []struct{ name, text, want string }{{"stdout", stdout.String(), tc.stdout}, {"stderr", stderr.String(), tc.stderr}} {
				if !strings.Contains(got.text, got.want) || (got.want == "" && got.text != "") {
					t.Errorf("%s = %q, want %q", got.name, got.text, got.want)
				}
			}
			if tc.stdout == version && stdout.String() != version {
				t.Errorf("stdout = %q, want only the version", stdout.String())
			}
		})
	}
}

func TestAgentGetsConfigAndLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\nmaxPodz: 8\n" +
		"---\napiVersion: tinylet.dev/v1alpha1\nkind: TinyletConfiguration\nlogFormat: json\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	p := program{stderr: &stderr, stdout: &stderr}
	failure := errors.New("start sync loop: no runtime")
	p.run = func(_ context.Context, cfg *config.Config, logger *slog.Logger) error {
		if cfg.Kubelet.MaxPods != 7 || cfg.NodeName != "board" {
			t.Errorf("maxPods %d, node %q", cfg.Kubelet.MaxPods, cfg.NodeName)
		}
		logger.Debug("shown at 4")
		logger.Log(context.Background(), slog.LevelDebug-1, "hidden at 4")
		klog.V(4).InfoS("from klog", "key", "value")
		klog.V(5).InfoS("hidden in klog")
		log.Print("from package log")
		return failure
	}
	args := []string{"tinylet", "--config", path, "--hostname-override=Board", "--v=4", "--lock-file=/run/l"}
	if code := p.main(t.Context(), args); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	last := len(lines) - 1
	if lines[last] != "tinylet: "+failure.Error() {
		t.Errorf("last line %q, want the error", lines[last])
	}
	seen := map[string]map[string]any{}
	for _, line := range lines[:last] {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("line %q is not JSON: %v", line, err)
			continue
		}
		seen[record["msg"].(string)] = record
	}
	for _, want := range []string{
		"ignore invalid fields of configuration", "flag has no effect",
		"shown at 4", "from klog", "from package log",
	} {
		if seen[want] == nil {
			t.Errorf("no line %q in %s", want, stderr.String())
		}
	}
	for _, unwanted := range []string{"hidden at 4", "hidden in klog"} {
		if seen[unwanted] != nil {
			t.Errorf("line %q at --v=4", unwanted)
		}
	}
	if seen["from klog"]["key"] != "value" {
		t.Errorf("klog's line lost its key: %v", seen["from klog"])
	}
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			exits := make(chan int, 1)
			ctx, stop := withSignals(t.Context(), func(code int) { exits <- code })
			defer stop()
			var stderr bytes.Buffer
			p := program{stderr: &stderr, run: func(ctx context.Context, _ *config.Config, _ *slog.Logger) error {
				if err := syscall.Kill(os.Getpid(), sig); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}}
			if code := p.main(ctx, []string{"tinylet"}); code != 0 {
				t.Errorf("exit code %d after %v: %s", code, sig, stderr.String())
			}
			if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "signal") {
				t.Errorf("cause = %v, want the signal", cause)
			}
			if err := syscall.Kill(os.Getpid(), sig); err != nil {
				t.Fatal(err)
			}
			if code := <-exits; code != 1 {
				t.Errorf("second signal: exit code %d", code)
			}
		})
	}
}

// stop must end the goroutine: a bubble with one left fails.
func TestSignalsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := withSignals(t.Context(), func(int) { t.Error("exit called") })
		stop()
		if ctx.Err() == nil {
			t.Error("stop left the context alive")
		}
	})
}
