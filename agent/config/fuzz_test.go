package config

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// No file and no drop-in may crash the agent, and what loads can be validated.
func FuzzLoad(f *testing.F) {
	f.Add(kubeletHead+"maxPods: 7\nevictionHard: {memory.available: 1Mi}", kubeletHead+"evictionHard: null")
	f.Add(kubeletHead+"---\n"+tinyletHead+"logFormat: json", tinyletHead+"socketPath: /a")
	f.Add(kubeletHead+"---\n"+tinyletHead+"metered: true", kubeletHead+"nodeLeaseDurationSeconds: 9")
	f.Add(kubeletHead+"authentication: null\nlogging: {vmodule: [{filePattern: a, verbosity: 1}]}", kubeletHead+"authentication: {x509: {clientCAFile: a}}")
	f.Add(kubeletHead+"registerWithTaints: [{key: a}]\nreservedMemory: [{numaNode: 1, limits: {memory: 1e99}}]", "- a\n--- b\n")
	f.Add(kubeletHead+"a: &a [x]\nb: [*a, *a]\nmemoryThrottlingFactor: .nan", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","tracing":{}}`)
	flags := newFlags(f)
	f.Fuzz(func(t *testing.T, base, dropIn string) {
		cfg, _, err := flags.build(&file{"/etc/c.yaml", []byte(base)}, []file{{"/etc/d/1.conf", []byte(dropIn)}}, hostname, 0)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", cfg, err)
		}
		if cfg != nil {
			_ = Validate(cfg)
		}
	})
}

// No command line may crash the agent. Arguments are separated by newlines.
func FuzzFlags(f *testing.F) {
	f.Add("--max-pods=5\n--cluster-dns\n1.2.3.4,5.6.7.8")
	f.Add("--reserved-memory=0:memory=1Gi;;1:\n--register-with-taints=,:,=:\n--vmodule=a=1,,=")
	f.Add("--eviction-hard=a<b<c,<\n--feature-gates==true\n--manifest-url-header=::,\n--allowed-unsafe-sysctls=\"")
	f.Add("-v5\n-v\n9\n--node-ip=1.2.3.4,\n--node-labels==,a")
	f.Fuzz(func(t *testing.T, line string) {
		set := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		set.SetOutput(io.Discard)
		set.Usage = func() {}
		flags := NewFlags(set)
		if set.Parse(strings.Split(line, "\n")) != nil {
			return
		}
		// What Set took, apply must take too.
		cfg, _, err := flags.build(nil, nil, hostname, 0)
		if err != nil {
			if !strings.Contains(err.Error(), "--node-ip") {
				t.Fatal(err)
			}
			return
		}
		_ = Validate(cfg)
	})
}
