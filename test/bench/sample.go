package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// sampleScript prints on a board what parseSample reads. What was written
// before reaches the disk first, so that a window has its own writes and no
// others. Processes that end meanwhile are left out.
const sampleScript = `sync
cd /proc
echo '== uptime'; cat uptime
echo '== stat'; cat stat
echo '== processes'; cat [0-9]*/stat 2> /dev/null
echo '== memory'; grep -H -e ^VmRSS: -e ^RssAnon: [0-9]*/status 2> /dev/null
echo '== meminfo'; grep ^MemAvailable: meminfo
echo '== wire'; cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth0/statistics/tx_bytes
echo '== disk'; cat /sys/block/vda/stat
`

// userHZ is the unit of times in /proc: ARM kernels have 100 a second.
const userHZ = 100

// sample is what a board has used since its start, and its memory now. Memory
// and traffic are in bytes.
type sample struct {
	at        time.Duration // since the board's start
	cpus      int
	idle      time.Duration // of all processors together
	available int64         // MemAvailable
	received  int64         // by the board, with all headers
	sent      int64
	written   int64 // to the disk
	processes map[int]process
}

// process is one process of a board.
type process struct {
	name      string // as the kernel has it: at most 15 bytes
	parent    int
	cpu       time.Duration
	reaped    time.Duration // CPU time of children that have ended
	rss, anon int64         // zero for a kernel thread
}

// sections are the parts that sampleScript prints.
var sections = map[string]func(*sample, []string) error{
	"uptime":    (*sample).readUptime,
	"stat":      (*sample).readStat,
	"processes": (*sample).readProcesses,
	"memory":    (*sample).readMemory,
	"meminfo":   (*sample).readMeminfo,
	"wire":      (*sample).readWire,
	"disk":      (*sample).readDisk,
}

// parseSample reads what sampleScript printed.
func parseSample(text string) (*sample, error) {
	parts := make(map[string][]string)
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if head, ok := strings.CutPrefix(line, "== "); ok {
			name = head
			continue
		}
		parts[name] = append(parts[name], line)
	}
	s := &sample{processes: make(map[int]process)}
	// Memory belongs to processes that are known by then.
	for _, name := range []string{"uptime", "stat", "processes", "memory", "meminfo", "wire", "disk"} {
		if len(parts[name]) == 0 {
			return nil, fmt.Errorf("read sample: no %s", name)
		}
		if err := sections[name](s, parts[name]); err != nil {
			return nil, fmt.Errorf("read sample: %s: %w", name, err)
		}
	}
	return s, nil
}

func (s *sample) readUptime(lines []string) error {
	up, _, _ := strings.Cut(lines[0], " ")
	seconds, err := strconv.ParseFloat(up, 64)
	s.at = time.Duration(seconds * float64(time.Second))
	return err
}

// readStat reads /proc/stat. The time that processors were idle is exact,
// also without ticks; the times that they worked are counted by ticks.
func (s *sample) readStat(lines []string) error {
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			s.cpus++
			continue
		}
		for _, v := range f[4:6] { // idle, iowait
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return err
			}
			s.idle += ticks(n)
		}
	}
	if s.cpus == 0 {
		return errors.New("no processors")
	}
	return nil
}

func ticks(n int64) time.Duration { return time.Duration(n) * time.Second / userHZ }

// readProcesses reads lines of /proc/PID/stat (proc_pid_stat(5)).
func (s *sample) readProcesses(lines []string) error {
	for _, line := range lines {
		pid, p, err := parseStat(line)
		if err != nil {
			return err
		}
		s.processes[pid] = p
	}
	return nil
}

func parseStat(line string) (int, process, error) {
	// The name is in parentheses and may hold anything, these included.
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return 0, process{}, fmt.Errorf("%q has no name", line)
	}
	f := strings.Fields(line[end+1:])
	if len(f) < 15 {
		return 0, process{}, fmt.Errorf("%q is too short", line)
	}
	var n [6]int64
	for i, v := range []string{strings.TrimSpace(line[:open]), f[1], f[11], f[12], f[13], f[14]} { // pid, parent, utime, stime, cutime, cstime
		var err error
		if n[i], err = strconv.ParseInt(v, 10, 64); err != nil {
			return 0, process{}, fmt.Errorf("%q: %w", line, err)
		}
	}
	return int(n[0]), process{name: line[open+1 : end], parent: int(n[1]), cpu: ticks(n[2] + n[3]), reaped: ticks(n[4] + n[5])}, nil
}

// readMemory reads lines of /proc/PID/status with the file's name before each.
func (s *sample) readMemory(lines []string) error {
	for _, line := range lines {
		file, rest, _ := strings.Cut(line, ":")
		field, value, _ := strings.Cut(rest, ":")
		pid, err := strconv.Atoi(strings.TrimSuffix(file, "/status"))
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		bytes, err := parseKB(value)
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		p, known := s.processes[pid]
		if !known {
			continue // it has just begun
		}
		switch field {
		case "VmRSS":
			p.rss = bytes
		case "RssAnon":
			p.anon = bytes
		}
		s.processes[pid] = p
	}
	return nil
}

// parseKB reads a size as /proc prints it, such as "  1234 kB".
func parseKB(text string) (int64, error) {
	number, isKB := strings.CutSuffix(strings.TrimSpace(text), " kB")
	if !isKB {
		return 0, fmt.Errorf("%q is no size in kB", text)
	}
	kb, err := strconv.ParseInt(number, 10, 64)
	return kb << 10, err
}

func (s *sample) readMeminfo(lines []string) error {
	_, value, _ := strings.Cut(lines[0], ":")
	var err error
	s.available, err = parseKB(value)
	return err
}

func (s *sample) readWire(lines []string) error {
	if len(lines) != 2 {
		return fmt.Errorf("%d counters", len(lines))
	}
	var err, err2 error
	s.received, err = strconv.ParseInt(lines[0], 10, 64)
	s.sent, err2 = strconv.ParseInt(lines[1], 10, 64)
	return errors.Join(err, err2)
}

// readDisk reads /sys/block/DISK/stat, whose seventh number is of sectors
// written, 512 bytes each whatever the disk's own sectors are.
func (s *sample) readDisk(lines []string) error {
	f := strings.Fields(lines[0])
	if len(f) < 7 {
		return fmt.Errorf("%q is too short", lines[0])
	}
	n, err := strconv.ParseInt(f[6], 10, 64)
	if err == nil && n == 0 {
		err = errors.New("nothing was ever written: it is not the board's disk")
	}
	s.written = n * 512
	return err
}
