package diskusage

import (
	"fmt"
	"testing"
)

// BenchmarkMeter measures a full node: 30 pods with ten volumes each, seven of them
// memory and three directories, and two containers with logs and a layer.
func BenchmarkMeter(b *testing.B) {
	var lines []string
	for i := range 30 {
		for j := range 7 {
			lines = append(lines, line(fmt.Sprintf("ROOT/%d/m%d", i, j), "tmpfs"))
		}
		for j := range 2 {
			lines = append(lines, fmt.Sprintf("50 22 0:50 / /run/c%d-%d/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=ROOT/%d/u%d", i, j, i, j))
		}
	}
	m := newBoard(b, Config{}, lines...)
	m.Meter.statfs = statfs
	for i := range 30 {
		p := Pod{UID: fmt.Sprint(i), Namespace: "ns", Other: []Place{m.place(fmt.Sprintf("%d/hosts", i))}}
		put(b, fmt.Sprintf("%s/%d/hosts", m.root, i), 100)
		for j := range 7 {
			p.Volumes = append(p.Volumes, Volume{Name: fmt.Sprint("m", j), Place: m.place(fmt.Sprintf("%d/m%d", i, j)), Mounted: true})
			put(b, fmt.Sprintf("%s/%d/m%d/f", m.root, i, j), 100)
		}
		for j := range 3 {
			p.Volumes = append(p.Volumes, Volume{Name: fmt.Sprint("d", j), Place: m.place(fmt.Sprintf("%d/d%d", i, j))})
			for k := range 10 {
				put(b, fmt.Sprintf("%s/%d/d%d/%d", m.root, i, j, k), 100)
			}
		}
		for j := range 2 {
			p.Containers = append(p.Containers, Container{Name: fmt.Sprint("c", j), ID: fmt.Sprintf("c%d-%d", i, j), Logs: m.place(fmt.Sprintf("%d/l%d", i, j))})
			put(b, fmt.Sprintf("%s/%d/l%d/0.log", m.root, i, j), 100)
			put(b, fmt.Sprintf("%s/%d/u%d/etc/f", m.root, i, j), 100)
		}
		m.pods = append(m.pods, p)
	}
	for _, old := range []bool{true, false} {
		b.Run(map[bool]string{true: "measured", false: "fresh"}[old], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if old {
					m.measuredAt = m.measuredAt.Add(-m.cfg.Fresh)
				}
				for i := range m.pods {
					if _, err := m.Pod(b.Context(), m.pods[i].UID, []string{"c0", "c1"}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkWalk measures one request for a tree that is far larger than the bounds.
func BenchmarkWalk(b *testing.B) {
	root := b.TempDir()
	forest(b, root+"/t")
	b.ReportAllocs()
	var k Walker
	entries := 0
	for b.Loop() {
		var w Walk
		if _, done, err := k.Measure(&w, Place{root, "t"}, 1<<20, never); !done || err != nil {
			b.Fatal(done, err)
		}
		entries += w.Entries()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(entries), "ns/entry")
}
