package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// burstScript waits on a board until count containers of a burst have printed
// their line, and prints what parseBurst reads: the processors' times about
// once a second, and the lines. It starts one program a second itself.
//
// A container prints the board's uptime as the first thing that it does. So
// the time is that of the container's own process, whatever an agent or the
// runtime reports, and it costs the board nothing to collect.
const burstScript = `logs='/var/log/pods/default_%[1]s-*/main/0.log'
echo '== begin'; cut -d ' ' -f 1 /proc/uptime
mv /etc/kubernetes/burst/*.yaml /etc/kubernetes/manifests/
echo '== busy'
tries=0
while [ $tries -lt %[3]d ]; do
	read up rest < /proc/uptime; read cpu < /proc/stat; echo "$up $cpu"
	set -- $logs
	if [ $# -eq %[2]d ]; then
		ready=0
		for log; do [ -s "$log" ] && ready=$((ready + 1)); done
		[ $ready -eq %[2]d ] && break
	fi
	sleep 1
	tries=$((tries + 1))
done
echo '== ran'; cat $logs
`

// burst is what happened on a board on which pods were created at once.
type burst struct {
	ran      []time.Duration // after the manifests came, in order
	busy     []busy
	emulator time.Duration // CPU time of what emulates the board
}

// busy is one reading of the processors' times while a burst runs.
type busy struct {
	at     time.Duration // after the manifests came
	idle   time.Duration // of all processors, since the board's start
	iowait time.Duration // the part of idle in which a process waited for the disk
}

// parseBurst reads what burstScript printed.
func parseBurst(text string) (*burst, error) {
	b, began, part := &burst{}, time.Duration(0), ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(line, "== "); ok {
			part = head
			continue
		}
		var err error
		switch part {
		case "begin":
			began, err = seconds(line)
		case "busy":
			err = b.readBusy(line, began)
		case "ran":
			err = b.readRan(line, began)
		default:
			err = fmt.Errorf("line %q is of no part", line)
		}
		if err != nil {
			return nil, fmt.Errorf("read burst: %s: %w", part, err)
		}
	}
	if began == 0 || len(b.ran) == 0 {
		return nil, fmt.Errorf("read burst: it began at %v and %d containers ran", began, len(b.ran))
	}
	slices.Sort(b.ran)
	return b, nil
}

// readBusy reads an uptime and the first line of /proc/stat (proc_stat(5)).
func (b *burst) readBusy(line string, began time.Duration) error {
	f := strings.Fields(line)
	if len(f) < 7 {
		return fmt.Errorf("%q is too short", line)
	}
	at, err := seconds(f[0])
	if err != nil {
		return err
	}
	var n [2]int64
	for i, v := range f[5:7] {
		if n[i], err = strconv.ParseInt(v, 10, 64); err != nil {
			return err
		}
	}
	b.busy = append(b.busy, busy{at: at - began, idle: ticks(n[0]) + ticks(n[1]), iowait: ticks(n[1])})
	return nil
}

// readRan reads a line of a container's log in CRI's format: a time, the
// stream, a tag, and the text.
func (b *burst) readRan(line string, began time.Duration) error {
	f := strings.Fields(line)
	if len(f) != 4 {
		return fmt.Errorf("%q is no line of a container of a burst", line)
	}
	at, err := seconds(f[3])
	b.ran = append(b.ran, at-began)
	return err
}

func seconds(text string) (time.Duration, error) {
	s, err := strconv.ParseFloat(text, 64)
	return time.Duration(s * float64(time.Second)), err
}

// idleUntil is how much of the processors' time was idle until the last
// container ran, and in how much of that a process waited for the disk, each
// as a share of one.
func (b *burst) idleUntil(cpus int) (idle, iowait float64) {
	last := b.ran[len(b.ran)-1]
	end := slices.IndexFunc(b.busy, func(x busy) bool { return x.at >= last })
	if end < 0 {
		end = len(b.busy) - 1
	}
	if end < 1 {
		return 0, 0
	}
	from, to := b.busy[0], b.busy[end]
	whole := float64(to.at-from.at) * float64(cpus)
	return float64(to.idle-from.idle) / whole, float64(to.iowait-from.iowait) / whole
}

// spread is the least, the median and the greatest of some times.
type spread struct{ least, middle, most time.Duration }

func spreadOf(times []time.Duration) spread {
	if len(times) == 0 {
		return spread{}
	}
	return spread{slices.Min(times), median(times), slices.Max(times)}
}

func (s spread) String() string {
	return fmt.Sprintf("%.1f / %.1f / %.1f s", s.least.Seconds(), s.middle.Seconds(), s.most.Seconds())
}

// burstRow are the bursts of one agent, cold or warm.
type burstRow struct {
	agent, kind string
	bursts      []*burst
	works       []work
}

// of collects one time of each burst.
func (r burstRow) of(get func(*burst) time.Duration) []time.Duration {
	var out []time.Duration
	for _, b := range r.bursts {
		out = append(out, get(b))
	}
	return out
}

// burstReport are the tables of all bursts.
func burstReport(rows []burstRow) string {
	var s strings.Builder
	s.WriteString("| agent | bursts | first | half | last | emulator's CPU |\n|---|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		fmt.Fprintf(&s, "| %s, %s | %d | %v | %v | %v | %v |\n", r.agent, r.kind, len(r.bursts),
			spreadOf(r.of(func(b *burst) time.Duration { return b.ran[0] })),
			spreadOf(r.of(func(b *burst) time.Duration { return median(b.ran) })),
			spreadOf(r.of(func(b *burst) time.Duration { return b.ran[len(b.ran)-1] })),
			spreadOf(r.of(func(b *burst) time.Duration { return b.emulator })))
	}
	s.WriteString("\nSeconds are least / median / greatest. CPU seconds, median of the bursts:\n\n| agent | idle | disk wait | busy |")
	for p := range workers {
		fmt.Fprintf(&s, " %s |", workerNames[p])
	}
	s.WriteString("\n|---|---:|---:|---:|" + strings.Repeat("---:|", int(workers)) + "\n")
	for _, r := range rows {
		var idle, iowait []float64
		var used [workers][]time.Duration
		var all []time.Duration
		for i, w := range r.works {
			a, b := r.bursts[i].idleUntil(w.cpus)
			idle, iowait, all = append(idle, a), append(iowait, b), append(all, w.busy)
			for p := range workers {
				used[p] = append(used[p], w.cpu[p])
			}
		}
		fmt.Fprintf(&s, "| %s, %s | %.0f %% | %.0f %% | %.1f |", r.agent, r.kind, 100*median(idle), 100*median(iowait), median(all).Seconds())
		for p := range workers {
			fmt.Fprintf(&s, " %.1f |", median(used[p]).Seconds())
		}
		s.WriteString("\n")
	}
	return s.String()
}

// worker is what does a part of the work of a burst.
type worker int

const (
	workAgent worker = iota
	workAgentChildren
	workContainerd
	workContainerdChildren // CNI plugins, and the shims' start commands
	workShims
	workShimsChildren // the OCI runtime
	workPods
	workKernel
	workOther // what is left: the supervisors, what carries the measuring, and interrupts
	workers
)

var workerNames = [workers]string{
	"agent", "agent's children", "containerd", "its children (CNI, shim start)", "shims", "their children (OCI runtime)", "pods", "kernel threads", "rest",
}

// work is the CPU time of a burst by what used it.
type work struct {
	cpus int
	busy time.Duration
	cpu  [workers]time.Duration
}

// workSince is the CPU time between an earlier sample and this one.
func (s *sample) workSince(before *sample, agent string) (work, error) {
	w, err := s.since(before, agent)
	if err != nil {
		return work{}, err
	}
	out := work{cpus: s.cpus, busy: w.busy}
	for p, to := range map[part]worker{partAgent: workAgent, partContainerd: workContainerd, partShims: workShims, partPods: workPods, partKernel: workKernel} {
		out.cpu[to] = w.cpu[p]
	}
	for pid, p := range s.processes {
		used := p.reaped
		if old, ok := before.processes[pid]; ok && old.name == p.name {
			used -= old.reaped
		}
		switch s.partOf(pid, agent) {
		case partAgent:
			out.cpu[workAgentChildren] += used
		case partContainerd:
			out.cpu[workContainerdChildren] += used
		case partShims:
			out.cpu[workShimsChildren] += used
		case partPods, partKernel, partOther, parts:
		}
	}
	rest := out.busy
	for _, used := range out.cpu {
		rest -= used
	}
	out.cpu[workOther] = max(0, rest)
	return out, nil
}

// byAgent keeps the rows of an agent together, and the cold before the warm.
func byAgent(a, b burstRow) int {
	return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.kind, b.kind))
}
