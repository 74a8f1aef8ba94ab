package stats

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/metrics"
)

// process reads the kernel's stats of the agent's process (proc(5)).
type process struct {
	proc string // path of /proc
}

type processStats struct {
	cpu               time.Duration
	started           time.Time
	virtual, resident uint64 // bytes
	open, limit       uint64 // number of file descriptors
}

// userHertz is USER_HZ, the unit of times in /proc. It has been the same on
// every architecture of Linux for decades.
const userHertz = 100

// maxStatLine limits a line of /proc/stat in bytes. That of all interrupts is the longest.
const maxStatLine = 1 << 20

func (p process) read() (f processStats, err error) {
	stat, err := os.ReadFile(filepath.Join(p.proc, "self", "stat"))
	if err != nil {
		return f, fmt.Errorf("read process stats: %w", err)
	}
	boot, err := p.boot()
	if err != nil {
		return f, err
	}
	if f, err = parseStat(stat, boot, uint64(os.Getpagesize())); err != nil {
		return f, err
	}
	dir, err := os.Open(filepath.Join(p.proc, "self", "fd"))
	if err != nil {
		return f, fmt.Errorf("count open files: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return f, fmt.Errorf("count open files: %w", err)
	}
	f.open = uint64(max(len(names), 1) - 1) // without the descriptor of dir
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return f, fmt.Errorf("get limit of open files: %w", err)
	}
	f.limit = limit.Cur
	return f, nil
}

// boot returns the boot time by the current clock. The clock may have been set
// since boot.
func (p process) boot() (time.Time, error) {
	file, err := os.Open(filepath.Join(p.proc, "stat"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read boot time: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxStatLine)
	for lines.Scan() {
		text, found := bytes.CutPrefix(lines.Bytes(), []byte("btime "))
		if seconds, err := strconv.ParseInt(string(text), 10, 64); found && err == nil {
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, fmt.Errorf("read boot time: no btime in %s", file.Name())
}

// errStat means that /proc/[pid]/stat does not have the format of proc(5).
var errStat = errors.New("read process stats: invalid format of stat")

// parseStat parses /proc/[pid]/stat. The second field is the command in
// parentheses. It may contain any characters, including parentheses.
func parseStat(text []byte, boot time.Time, page uint64) (f processStats, err error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	// Fields are numbered as in proc(5). fields starts with the third one.
	number := func(n int) uint64 {
		if n-3 >= len(fields) {
			err = errStat
			return 0
		}
		v, bad := strconv.ParseUint(string(fields[n-3]), 10, 64)
		if bad != nil {
			err = errStat
		}
		return v
	}
	f.cpu = ticks(number(14) + number(15))
	f.started = boot.Add(ticks(number(22)))
	f.virtual, f.resident = number(23), number(24)*page
	return f, err
}

func ticks(n uint64) time.Duration {
	const each = time.Second / userHertz
	return time.Duration(min(n, uint64(1<<63-1)/uint64(each))) * each
}

// WriteProcess writes the go_ and process_ metrics that Prometheus' client
// libraries write for their own process. Metrics that cannot be read are
// omitted.
func WriteProcess(out *metrics.Stream) { process{proc: "/proc"}.writeMetrics(out) }

func (p process) writeMetrics(out *metrics.Stream) {
	out.Family(metrics.KindGauge, "go_goroutines", "Number of goroutines that currently exist.")
	out.Sample(float64(runtime.NumGoroutine()))
	out.Family(metrics.KindGauge, "go_info", "Information about the Go environment.")
	out.Sample(1, metrics.AppendLabel(nil, "version", runtime.Version()))
	f, err := p.read()
	if err != nil {
		return
	}
	out.Family(metrics.KindCounter, "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
	out.Sample(f.cpu.Seconds())
	for _, g := range []struct {
		name, help string
		value      float64
	}{
		{"process_resident_memory_bytes", "Resident memory size in bytes.", float64(f.resident)},
		{"process_virtual_memory_bytes", "Virtual memory size in bytes.", float64(f.virtual)},
		{"process_open_fds", "Number of open file descriptors.", float64(f.open)},
		{"process_max_fds", "Maximum number of open file descriptors.", float64(f.limit)},
		{"process_start_time_seconds", "Start time of the process since unix epoch in seconds.", float64(f.started.UnixMilli()) / 1e3},
	} {
		out.Family(metrics.KindGauge, g.name, g.help)
		out.Sample(g.value)
	}
}

// WriteBuildInfo writes kubernetes_build_info, as Kubernetes components do. The
// binary does not contain the commit, so git_commit and git_tree_state are
// empty.
func WriteBuildInfo(out *metrics.Stream) {
	major, minor := version.MajorMinor()
	built := ""
	if at := version.BuildTime(); !at.IsZero() {
		built = at.Format(time.RFC3339)
	}
	var labels []byte
	for _, l := range [][2]string{
		{"build_date", built}, {"compiler", runtime.Compiler}, {"git_commit", ""}, {"git_tree_state", ""}, {"git_version", version.Kubelet()},
		{"go_version", runtime.Version()}, {"major", major}, {"minor", minor}, {"platform", runtime.GOOS + "/" + runtime.GOARCH},
	} {
		labels = metrics.AppendLabel(labels, l[0], l[1])
	}
	out.Family(metrics.KindGauge, "kubernetes_build_info", "Constant 1, labeled with the build of the agent.")
	out.Sample(1, labels)
}
