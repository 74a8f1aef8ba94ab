package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

// Every row of the table must find its field and set it.
func TestBoundFlagsSetTheirFields(t *testing.T) {
	samples := map[string]string{
		"bool": "true", "int": "3", "string": "x", "strings": "a,b", "duration": "7s", "quantity": "4Ki",
		"key=value,...": "a=b", "signal<quantity,...": "a<b", "key=bool,...": "a=true", "name:value,...": "a:b",
		"key=value:effect,...": "a=b:NoSchedule", "numa:type=quantity,...;...": "0:memory=1Gi", "pattern=N,...": "f=2",
	}
	if !slices.IsSortedFunc(boundFlags, func(a, b boundFlag) int { return strings.Compare(a.name, b.name) }) {
		t.Error("boundFlags is not in the order of names")
	}
	f := newFlags(t)
	for _, value := range f.bound {
		t.Run(value.flag.name, func(t *testing.T) {
			sample, ok := samples[value.Type()]
			if !ok {
				t.Fatalf("no sample for type %q", value.Type())
			}
			var kc kubelet.KubeletConfiguration
			field := fieldByPath(reflect.ValueOf(&kc).Elem(), value.flag.field)
			if !field.IsValid() {
				t.Fatalf("no field %s", value.flag.field)
			}
			if err := f.set.Set(value.flag.name, sample); err != nil {
				t.Fatal(err)
			}
			if err := value.apply(&kc); err != nil {
				t.Fatal(err)
			}
			if field.IsZero() {
				t.Errorf("%q left %s unset", sample, value.flag.field)
			}
		})
	}
}

func TestFlagTexts(t *testing.T) {
	taint := func(kc *kubelet.KubeletConfiguration) any { return kc.RegisterWithTaints }
	for _, tc := range []struct {
		name string
		args []string
		get  func(*kubelet.KubeletConfiguration) any
		want any
	}{
		{"taint without value", []string{"--register-with-taints=a:NoExecute"}, taint, []v1.Taint{{Key: "a", Effect: "NoExecute"}}},
		{"taints", []string{"--register-with-taints=a=b:NoSchedule,c=:NoExecute"}, taint, []v1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}}},
		{"taints replace", []string{"--register-with-taints=a:NoExecute", "--register-with-taints=b:NoExecute"}, taint, []v1.Taint{{Key: "b", Effect: "NoExecute"}}},
		{"no taints", []string{"--register-with-taints="}, taint, []v1.Taint(nil)},
		{
			"memory of two nodes", []string{"--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi"},
			func(kc *kubelet.KubeletConfiguration) any { return kc.ReservedMemory },
			[]kubelet.MemoryReservation{
				{NumaNode: 0, Limits: v1.ResourceList{"memory": resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("4Mi")}},
				{NumaNode: 1, Limits: v1.ResourceList{"memory": resource.MustParse("2Gi")}},
			},
		},
		{"comma in an option", []string{"--cpu-manager-policy-options=a=1,2", "--cpu-manager-policy-options=b=3"}, func(kc *kubelet.KubeletConfiguration) any { return kc.CPUManagerPolicyOptions }, map[string]string{"a": "1,2", "b": "3"}},
		{"comma in quotes", []string{`--allowed-unsafe-sysctls="a,b",c`}, func(kc *kubelet.KubeletConfiguration) any { return kc.AllowedUnsafeSysctls }, []string{"a,b", "c"}},
		{"empty list", []string{"--enforce-node-allocatable="}, func(kc *kubelet.KubeletConfiguration) any { return kc.EnforceNodeAllocatable }, []string{}},
		{"shorthand", []string{"-v", "5"}, func(kc *kubelet.KubeletConfiguration) any { return kc.Logging.Verbosity }, kubelet.VerbosityLevel(5)},
		{"shorthand with =", []string{"-v=5"}, func(kc *kubelet.KubeletConfiguration) any { return kc.Logging.Verbosity }, kubelet.VerbosityLevel(5)},
		{"64 bits", []string{"--pod-max-pids=4294967296"}, func(kc *kubelet.KubeletConfiguration) any { return *kc.PodPidsLimit }, int64(1) << 32},
		{"URL with a colon in a header", []string{"--manifest-url-header=Referer:http://a:80"}, func(kc *kubelet.KubeletConfiguration) any { return kc.StaticPodURLHeader }, map[string][]string{"Referer": {"http://a:80"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, _ := mustBuild(t, tc.args, nil)
			if diff := cmp.Diff(tc.want, tc.get(&cfg.Kubelet)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRejectedFlags(t *testing.T) {
	for _, tc := range []struct{ arg, want string }{
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"--max-pods=many", "expected a whole number"},
		{"--max-pods=3000000000", "expected a whole number of 32 bits"},
		{"--v=-1", "expected a whole number from 0"},
		{"--fail-swap-on=perhaps", "expected true or false"},
		{"--sync-frequency=60", "expected a duration"},
		{"--eviction-hard=memory.available=1Mi", "expected key<value"},
		{"--kube-reserved=cpu", "expected key=value"},
		{"--manifest-url-header=a=b", "expected key:value"},
		{"--feature-gates=A=maybe", "expected true or false"},
		{"--register-with-taints=a", "expected key=value:effect"},
		{"--reserved-memory=memory=1Gi", "expected numa:type=quantity"},
		{"--reserved-memory=0:memory=lots", `quantity "lots"`},
		{"--housekeeping-interval=often", "invalid duration"},
		{"--maximum-dead-containers=x", "invalid syntax"},
		{"--config", "needs an argument"},
	} {
		t.Run(tc.arg, func(t *testing.T) {
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			set.SetOutput(io.Discard)
			NewFlags(set)
			if err := set.Parse([]string{tc.arg}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestInertFlagsWarnOnce(t *testing.T) {
	args := []string{"--lock-file=/run/lock", "--vmodule=a=1,b=2", "--storage_driver_db=x", "--max-pods=5", "--cluster-dns=10.0.0.1", "--vmodule=c=3"}
	cfg, warnings := mustBuild(t, append(args, "--pod-manifest-path=/m"), nil)
	var got []string
	for _, w := range warnings {
		got = append(got, fmt.Sprint(w.Message, " ", w.Attrs[0]))
	}
	want := []string{"flag has no effect flag=--lock-file", "flag has no effect flag=--storage-driver-db", "setting is not honoured field=logging.vmodule"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(cfg.Kubelet.Logging.VModule); n != 3 {
		t.Errorf("%d vmodule patterns, want 3", n)
	}
}

func TestFeatureGates(t *testing.T) {
	_, warnings := mustBuild(t, []string{"--pod-manifest-path=/m", "--feature-gates=AllAlpha=false,ImageVolume=true,imageVolume=true,WinDSR=true,WatchListClient=true"}, nil)
	if len(warnings) != 1 || warnings[0].Message != "unknown feature gate" || warnings[0].Attrs[0].Value.String() != "imageVolume" {
		t.Errorf("warnings: %v", warnings)
	}
}

func TestHelpShowsDefaults(t *testing.T) {
	set := newFlags(t).set
	for name, want := range map[string]string{
		"max-pods": "110", "sync-frequency": "1m0s", "fail-swap-on": "true", "cgroup-driver": "cgroupfs",
		"cpu-cfs-quota-period": "100ms", "log-flush-frequency": "5s", "eviction-hard": "", "cluster-dns": "",
	} {
		if got := set.Lookup(name).DefValue; got != want {
			t.Errorf("--%s: default %q, want %q", name, got, want)
		}
	}
}
