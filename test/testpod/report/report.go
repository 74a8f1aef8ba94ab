// Package report collects what a process can observe of its container:
// identity, rights, namespaces, mounts, limits, names and settings. The
// program prints a Report as JSON, tests read it.
package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Report is what a process sees. Fields that cannot be read are empty.
type Report struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"` // supplementary, as the kernel lists them

	// Sets of capabilities in hexadecimal digits, as in proc_pid_status(5).
	CapEffective string `json:"capEffective"`
	CapBounding  string `json:"capBounding"`
	CapAmbient   string `json:"capAmbient"`
	NoNewPrivs   bool   `json:"noNewPrivs"`
	Seccomp      int    `json:"seccomp"` // 0 is off, 2 is a filter
	AppArmor     string `json:"appArmor"`

	PID        int               `json:"pid"`
	PID1       string            `json:"pid1"` // command line of process 1
	Processes  []string          `json:"processes"`
	Namespaces map[string]string `json:"namespaces"` // such as pid: "pid:[4026531836]"
	UIDMap     string            `json:"uidMap"`
	GIDMap     string            `json:"gidMap"`
	OOMScore   int               `json:"oomScoreAdj"`

	Dir        string            `json:"dir"`
	Args       []string          `json:"args"`
	Env        map[string]string `json:"env"`
	Terminal   bool              `json:"terminal"` // standard output is a terminal
	Hostname   string            `json:"hostname"`
	FQDN       string            `json:"fqdn"` // the first name of the hostname's line in Hosts
	Hosts      string            `json:"hosts"`
	ResolvConf string            `json:"resolvConf"`

	Mounts  []Mount           `json:"mounts"`
	Limits  map[string]string `json:"limits"`  // "soft hard" by name
	Sysctls map[string]string `json:"sysctls"` // those asked for
	Cgroup  map[string]string `json:"cgroup"`  // files asked for; no entry for one that is not there
	Devices int               `json:"devices"` // entries of /dev
}

// Mount is a line of proc_pid_mountinfo(5).
type Mount struct {
	Point       string `json:"point"`
	Root        string `json:"root"` // what of the file system is mounted
	Type        string `json:"type"`
	Options     string `json:"options"` // of the mount
	Super       string `json:"super"`   // of the file system
	Propagation string `json:"propagation"`
}

// Has reports whether one of the comma-separated options is o.
func (m Mount) Has(o string) bool { return strings.Contains(","+m.Options+",", ","+o+",") }

// At is the last mount on a path, or one with no Point.
func (r *Report) At(point string) Mount {
	var at Mount
	for _, m := range r.Mounts {
		if m.Point == point {
			at = m
		}
	}
	return at
}

// Ask names what a report has only on demand.
type Ask struct {
	Sysctls []string // with dots
	Cgroup  []string // names of files, such as memory.max
}

// Read reports on the calling process.
func Read(ask Ask) *Report {
	r := &Report{UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid(), Args: os.Args}
	r.status(text("/proc/self/status"))
	r.AppArmor = line("/proc/self/attr/current")
	r.processes()
	r.Namespaces = map[string]string{}
	entries, _ := os.ReadDir("/proc/self/ns")
	for _, e := range entries {
		r.Namespaces[e.Name()], _ = os.Readlink("/proc/self/ns/" + e.Name())
	}
	r.UIDMap, r.GIDMap = fields("/proc/self/uid_map"), fields("/proc/self/gid_map")
	r.OOMScore, _ = strconv.Atoi(line("/proc/self/oom_score_adj"))
	r.Dir, _ = os.Getwd()
	r.Env = map[string]string{}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		r.Env[name] = value
	}
	if info, err := os.Stdout.Stat(); err == nil {
		r.Terminal = info.Mode()&os.ModeCharDevice != 0
	}
	r.Hostname, _ = os.Hostname()
	r.Hosts, r.ResolvConf = text("/etc/hosts"), text("/etc/resolv.conf")
	r.FQDN = fqdn(r.Hosts, r.Hostname)
	r.Mounts = parseMounts(strings.NewReader(text("/proc/self/mountinfo")))
	r.Limits = parseLimits(text("/proc/self/limits"))
	r.Sysctls, r.Cgroup = map[string]string{}, map[string]string{}
	for _, name := range ask.Sysctls {
		r.Sysctls[name] = fields("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	}
	for _, name := range ask.Cgroup {
		if b, err := os.ReadFile("/sys/fs/cgroup/" + name); err == nil {
			r.Cgroup[name] = strings.TrimSpace(string(b))
		}
	}
	devices, _ := os.ReadDir("/dev")
	r.Devices = len(devices)
	return r
}

func text(path string) string {
	b, _ := os.ReadFile(path) // empty where it cannot be read, as Report says
	return string(b)
}

func line(path string) string { return strings.Trim(text(path), "\x00\n ") }

func fields(path string) string { return strings.Join(strings.Fields(text(path)), " ") }

// status takes over /proc/PID/status.
func (r *Report) status(status string) {
	for l := range strings.Lines(status) {
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Groups":
			for g := range strings.FieldsSeq(value) {
				if n, err := strconv.Atoi(g); err == nil {
					r.Groups = append(r.Groups, n)
				}
			}
		case "CapEff":
			r.CapEffective = value
		case "CapBnd":
			r.CapBounding = value
		case "CapAmb":
			r.CapAmbient = value
		case "NoNewPrivs":
			r.NoNewPrivs = value == "1"
		case "Seccomp":
			r.Seccomp, _ = strconv.Atoi(value)
		}
	}
}

func (r *Report) processes() {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		said := strings.TrimSpace(strings.ReplaceAll(text(f), "\x00", " "))
		if f == "/proc/1/cmdline" {
			r.PID1 = said
		}
		if said != "" {
			r.Processes = append(r.Processes, said)
		}
	}
}

// fqdn is what "hostname -f" makes of the hosts file: the canonical name of
// the line that names the host, or the name itself.
func fqdn(hosts, hostname string) string {
	for l := range strings.Lines(hosts) {
		l, _, _ = strings.Cut(l, "#")
		names := strings.Fields(l)
		for i := 1; i < len(names); i++ {
			if names[i] == hostname {
				return names[1]
			}
		}
	}
	return hostname
}

func parseMounts(r io.Reader) []Mount {
	var out []Mount
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for s := bufio.NewScanner(r); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		own, of := strings.Fields(before), strings.Fields(after)
		if !ok || len(own) < 6 || len(of) < 3 {
			continue
		}
		out = append(out, Mount{
			Root: unescape.Replace(own[3]), Point: unescape.Replace(own[4]), Options: own[5],
			Propagation: strings.Join(own[6:], " "), Type: of[0], Super: of[2],
		})
	}
	return out
}

// parseLimits reads /proc/PID/limits, whose columns are 26, 21, 21 and 10
// wide.
func parseLimits(limits string) map[string]string {
	out := map[string]string{}
	for l := range strings.Lines(limits) {
		if len(l) < 68 || strings.HasPrefix(l, "Limit") {
			continue
		}
		name := strings.TrimSpace(strings.TrimPrefix(l[:26], "Max "))
		out[name] = fmt.Sprint(strings.TrimSpace(l[26:47]), " ", strings.TrimSpace(l[47:68]))
	}
	return out
}
