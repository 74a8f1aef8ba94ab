package upstream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
)

// BenchmarkPlugins is one more container with two ports of the host, alone and
// beside 200 such, by tinylet-cni ("own") and by bridge, host-local and portmap
// ("others"). They take turns, so that what else the machine does is the same
// for both, and the medians are told:
//
//   - cpu-ms: what the processes take, with those that they start
//   - wall-ms: from the call of libcni to its answer
//   - rss-MiB: the memory of the largest of the processes
//
// go test tells the time of a turn of both as ns/op.
func BenchmarkPlugins(b *testing.B) {
	for _, beside := range []int{0, 200} {
		b.Run(fmt.Sprintf("beside_%d", beside), func(b *testing.B) {
			both := map[string]*node{"own": newOwn(b, "1.0.0"), "others": newOther(b)}
			for _, n := range both {
				n.crowd(beside)
			}
			for name, ports := range map[string][]portMapping{
				"tcp": {{8080, 80, "tcp", ""}, {8443, 443, "tcp", ""}},
				"udp": {{5353, 53, "udp", ""}, {5354, 54, "udp", ""}},
			} {
				b.Run(name, func(b *testing.B) { takeTurns(b, both, ports) })
			}
		})
	}
}

// crowd sets up containers with two ports each.
func (n *node) crowd(size int) {
	for i := range int32(size) {
		n.add(n.newContainer(portMapping{10000 + i, 80, "tcp", ""}, portMapping{20000 + i, 81, "tcp", ""}))
	}
}

// taken is what one verb of a node has taken, each time.
type taken struct{ cpu, wall []time.Duration }

func (t *taken) count(do func()) {
	before, begin := children(), time.Now()
	do()
	t.wall, t.cpu = append(t.wall, time.Since(begin)), append(t.cpu, children()-before)
}

// children is what the processes that this one has waited for have used of the
// CPU, with those that they have waited for.
func children() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func takeTurns(b *testing.B, both map[string]*node, ports []portMapping) {
	containers, counts := map[string]*container{}, map[string]*taken{}
	for name, n := range both {
		containers[name] = n.newContainer(ports...)
		counts[name+"-add"], counts[name+"-del"] = &taken{}, &taken{}
	}
	for b.Loop() {
		for name, n := range both { // in any order
			counts[name+"-add"].count(func() { n.add(containers[name]) })
			counts[name+"-del"].count(func() { n.del(containers[name]) })
		}
	}
	for name, n := range both {
		b.ReportMetric(n.memory(b, containers[name]), name+"-rss-MiB")
	}
	for name, t := range counts {
		b.ReportMetric(median(t.cpu), name+"-cpu-ms")
		b.ReportMetric(median(t.wall), name+"-wall-ms")
	}
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}

var weigher = sync.OnceValues(func() (string, error) { return build("rss", "./rss") })

// memory is what ADD and DEL need, in MiB. It counts in calls of its own.
func (n *node) memory(b *testing.B, c *container) float64 {
	dir, err := weigher()
	if err != nil {
		b.Fatal(err)
	}
	w := &weighed{DefaultExec: &invoke.DefaultExec{RawExec: &invoke.RawExec{}}, weigher: filepath.Join(dir, "rss"), dir: b.TempDir()}
	plain := n.CNIConfig
	n.CNIConfig = libcni.NewCNIConfigWithCacheDir(plain.Path, b.TempDir(), w)
	defer func() { n.CNIConfig = plain }()
	n.add(c)
	n.del(c)
	data, err := os.ReadFile(filepath.Join(w.dir, "rss"))
	if err != nil {
		b.Fatal(err)
	}
	most := 0
	for _, line := range strings.Fields(string(data)) {
		kib, err := strconv.Atoi(line)
		if err != nil {
			b.Fatal(err)
		}
		most = max(most, kib)
	}
	return float64(most) / 1024
}

// weighed executes plugins with rss in between.
type weighed struct {
	*invoke.DefaultExec
	weigher, dir string
}

// ExecPlugin implements invoke.Exec.
func (w *weighed) ExecPlugin(ctx context.Context, plugin string, stdin []byte, env []string) ([]byte, error) {
	script := filepath.Join(w.dir, filepath.Base(plugin))
	text := "#!/bin/sh\nexec " + w.weigher + " " + filepath.Join(w.dir, "rss") + " " + plugin + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return nil, err
	}
	return w.DefaultExec.ExecPlugin(ctx, script, stdin, env)
}
