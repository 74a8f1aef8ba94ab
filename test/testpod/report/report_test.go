package report

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMounts(t *testing.T) {
	const info = `36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
bad line
37 36 0:50 / /proc ro,nosuid - proc proc rw
`
	want := []Mount{
		{Point: "/mnt 2", Root: "/mnt1", Type: "ext3", Options: "rw,noatime", Super: "rw,errors=continue", Propagation: "master:1 shared:2"},
		{Point: "/proc", Root: "/", Type: "proc", Options: "ro,nosuid", Super: "rw"},
	}
	got := parseMounts(strings.NewReader(info))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r := Report{Mounts: got}
	if m := r.At("/proc"); !m.Has("ro") || m.Has("r") || r.At("/none").Point != "" {
		t.Errorf("mount found: %+v", m)
	}
}

func TestStatus(t *testing.T) {
	var r Report
	r.status("Name:\tx\nGroups:\t1000 2000 \nNoNewPrivs:\t1\nSeccomp:\t2\nCapEff:\t0000000000000400\nCapBnd:\t01\nCapAmb:\t02\n")
	want := Report{Groups: []int{1000, 2000}, NoNewPrivs: true, Seccomp: 2, CapEffective: "0000000000000400", CapBounding: "01", CapAmbient: "02"}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

func TestFQDN(t *testing.T) {
	hosts := "# managed\n127.0.0.1\tlocalhost\n10.0.0.5\tweb.sub.default.svc.cluster.local\tweb # me\n"
	for host, want := range map[string]string{"web": "web.sub.default.svc.cluster.local", "other": "other", "localhost": "localhost"} {
		if got := fqdn(hosts, host); got != want {
			t.Errorf("full name of %s: %q, want %q", host, got, want)
		}
	}
}

func TestReadTellsOfItself(t *testing.T) {
	t.Setenv("REPORT_TEST", "here")
	r := Read(Ask{Sysctls: []string{"kernel.ostype"}, Cgroup: []string{"no.such.file"}})
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if r.UID != os.Getuid() || r.PID != os.Getpid() || r.Dir != dir || r.Env["REPORT_TEST"] != "here" {
		t.Errorf("identity: %+v", r)
	}
	if r.Sysctls["kernel.ostype"] != "Linux" || len(r.Cgroup) != 0 {
		t.Errorf("settings: %v %v", r.Sysctls, r.Cgroup)
	}
	if r.At("/proc").Type != "proc" || !strings.HasPrefix(r.Namespaces["pid"], "pid:[") || r.Limits["open files"] == "" || len(r.Processes) == 0 {
		t.Errorf("mounts, namespaces, limits, processes: %+v", r)
	}
}
